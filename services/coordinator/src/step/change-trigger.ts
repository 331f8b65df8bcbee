/** The member `on` of a process definition. It lists which changes in the books of a company start a run. */
import {
  EntityId,
  EntityName,
  providerEntities,
  type ProviderEntity,
  type ProviderEvent,
  providerOperations,
  type ProviderOperation,
  providerRoutingKey,
} from '@integration-host/shared/contracts/provider-event'
import { Realm } from '@integration-host/shared/contracts/realm'
import { z } from 'zod'
import { isEntryTrigger } from './entry-trigger.ts'
import { requireMembers } from './definition.ts'

/**
 * An entry of the member `on` of a process. A run starts for each change of an object that has this `entity`, if the
 * change is one of these `operations`.
 */
export interface ChangeTrigger {
  readonly provider: 'intuit'
  /**
   * The entity in the spelling of the provider's API, for example `Invoice`. The name of an entity that this release does
   * not know yet is accepted as well.
   */
  readonly entity: ProviderEntity | (string & {})
  readonly operations: readonly [ProviderOperation, ...ProviderOperation[]]
  /**
   * With this member, several changes of the same object start only one run. The run starts this many seconds after the
   * last change, but at the latest ten times as many seconds after the first change. A whole number from 1 to 86,400.
   * Default: each change starts a run at once.
   */
  readonly debounceSeconds?: number
}

/**
 * The schema of the initial data of a run that a change has started, for the member `input` of a process. It contains
 * names and ids only: the run reads the object from the provider.
 */
export const ProviderChange = z.strictObject({
  provider: z.literal('intuit'),
  /** The company whose books have changed. It is also the `Realm` of the run. */
  realm: Realm,
  entity: EntityName,
  /** The id of the changed object. */
  id: EntityId,
  operation: z.enum(providerOperations),
  /** The time at which the object was changed, as the provider reports it, in ISO 8601. */
  changedAt: z.iso.datetime(),
  /** For a merge: the id of the object that was merged into `id` and deleted. */
  deletedId: EntityId.optional(),
})
export type ProviderChange = z.output<typeof ProviderChange>

const MEMBERS = new Set<string>([
  'provider',
  'entity',
  'operations',
  'debounceSeconds',
] satisfies (keyof ChangeTrigger)[])
const OPERATIONS: ReadonlySet<unknown> = new Set(providerOperations)

/**
 * Returns the entries of `on` that are about changes at the provider, after checking them.
 *
 * @throws {TypeError} for an unknown provider, entity, operation or member, and for a change that two entries name.
 */
export function triggersOf(process: string, on: unknown): readonly ChangeTrigger[] {
  if (on === undefined) return []
  if (!Array.isArray(on)) throw new TypeError(`on of ${process} must be an array`)
  const seen = new Set<string>()
  for (const [index, entry] of (on as readonly unknown[]).entries()) {
    if (isEntryTrigger(entry)) continue
    const what = `on[${index}] of ${process}`
    if (typeof entry !== 'object' || entry === null || Array.isArray(entry))
      throw new TypeError(`${what} must be an object with provider, entity and operations`)
    requireMembers(entry, MEMBERS, what)
    const { provider, entity, operations, debounceSeconds } = entry as Partial<
      Record<string, unknown>
    >
    if (provider !== 'intuit')
      throw new TypeError(`${what}: ${shown(provider)} is not a provider: use 'intuit'`)
    // An entity that this release does not know may be one that the provider has added.
    const hint = spelling(entity)
    if (!EntityName.safeParse(entity).success || hint !== '')
      throw new TypeError(
        `${what}: ${shown(entity)} is not an entity whose changes are reported${hint}`,
      )
    if (debounceSeconds !== undefined && !isDebounce(debounceSeconds))
      throw new TypeError(
        `${what}: debounceSeconds must be a whole number from 1 to ${MAX_DEBOUNCE_SECONDS}`,
      )
    if (!Array.isArray(operations) || operations.length === 0)
      throw new TypeError(`${what}: operations must be an array with at least one operation`)
    for (const operation of operations) {
      if (!OPERATIONS.has(operation))
        throw new TypeError(
          `${what}: ${shown(operation)} is not an operation: use ${providerOperations.join(', ')}`,
        )
      const change = `${String(entity)}.${String(operation)}`
      if (seen.has(change)) throw new TypeError(`${what}: ${change} is named twice`)
      seen.add(change)
    }
  }
  return (on as readonly ChangeTrigger[]).filter((entry) => !isEntryTrigger(entry))
}

const MAX_DEBOUNCE_SECONDS = 86_400
const isDebounce = (value: unknown): boolean =>
  Number.isInteger(value) && Number(value) >= 1 && Number(value) <= MAX_DEBOUNCE_SECONDS

/**
 * Returns the `debounceSeconds` of the entry that names the change; `undefined` if the entry has no `debounceSeconds`.
 */
export const debounceSecondsOf = (
  triggers: readonly ChangeTrigger[],
  { Entity, Operation }: Pick<ProviderEvent, 'Entity' | 'Operation'>,
): number | undefined =>
  triggers.find(
    ({ entity, operations }) =>
      entity.toLowerCase() === Entity.toLowerCase() && operations.includes(Operation),
  )?.debounceSeconds

/** Returns the debounce key, which is the same for all changes of an object. */
export const debounceKeyOf = ({
  Provider,
  Entity,
  EntityId: id,
}: Pick<ProviderEvent, 'Provider' | 'Entity' | 'EntityId'>): string => `${Provider}.${Entity}.${id}`

/**
 * Returns the routing keys of the events that start a run of the process. An event of an unknown entity has the name
 * that the provider gave, which is in lower case in the CloudEvents format, so there are keys for both spellings.
 */
export const routingKeysOf = (triggers: readonly ChangeTrigger[]): readonly string[] =>
  triggers.flatMap(({ provider, entity, operations }) => {
    const isKnown = (providerEntities as readonly string[]).includes(entity)
    const names = isKnown ? [entity] : [...new Set([entity, entity.toLowerCase()])]
    return names.flatMap((Entity) =>
      operations.map((Operation) => providerRoutingKey({ Provider: provider, Entity, Operation })),
    )
  })

/** Returns the initial data of the run that an event starts. */
export const changeOf = (event: ProviderEvent): Readonly<Record<string, string>> => ({
  provider: event.Provider,
  realm: event.Realm,
  entity: event.Entity,
  id: event.EntityId,
  operation: event.Operation,
  changedAt: event.ChangedAt,
  ...(event.DeletedId !== undefined && { deletedId: event.DeletedId }),
})

const shown = (value: unknown): string =>
  typeof value === 'string' ? `'${value.slice(0, 64)}'` : typeof value

/**
 * Returns a hint for the error text if an entity differs from a known one only in upper and lower case; otherwise an
 * empty text.
 */
function spelling(entity: unknown): string {
  if (typeof entity !== 'string') return ''
  const meant = providerEntities.find((name) => name.toLowerCase() === entity.toLowerCase())
  return meant === undefined || meant === entity ? '' : `: use '${meant}'`
}
