/** The entries of the member `on` of a process that start a run if what runs have written was changed from outside. */
import {
  type EntryEvent,
  entryEventKinds,
  type EntryEventKind,
  entryRoutingKey,
  EntityId,
  EntityName,
  type ProviderEntity,
} from '@integration-host/shared/contracts/provider-event'
import { Realm } from '@integration-host/shared/contracts/realm'
import { z } from 'zod'
import { requireMembers } from './definition.ts'

/**
 * An entry of the member `on` of a process. A run starts if an object of this `entity`, which any run has written, was
 * changed (or voided) from outside, was deleted, or is missing.
 */
export interface EntryTrigger {
  readonly entry: readonly [EntryEventKind, ...EntryEventKind[]]
  /** The entity in the spelling of the provider's API, for example `Invoice`. */
  readonly entity: ProviderEntity | (string & {})
}

/**
 * The schema of the initial data of a run that such a change has started, for the member `input` of a process. It contains
 * names and ids only.
 */
export const EntryChange = z.strictObject({
  /** The company whose books have changed. It is also the `Realm` of the run. */
  realm: Realm,
  entity: EntityName,
  /** The id of the object. */
  id: EntityId,
  entry: z.enum(entryEventKinds),
  /** `ChangedOutside`, `Voided`, `Deleted` or `Missing`. */
  state: z.string(),
  /** The paths of the written fields that were changed. */
  changed: z.array(z.string()),
  /** The time of the change, ISO 8601. */
  at: z.iso.datetime(),
  /** The run and step that have written the object last. */
  process: z.string(),
  transaction: z.string(),
  replay: z.int(),
  step: z.string(),
})
export type EntryChange = z.output<typeof EntryChange>

const MEMBERS = new Set<string>(['entry', 'entity'] satisfies (keyof EntryTrigger)[])

/** Whether an entry of `on` is about what runs have written, and not about any change at the provider. */
export const isEntryTrigger = (entry: unknown): boolean =>
  typeof entry === 'object' && entry !== null && 'entry' in entry

/**
 * Returns the entries of `on` that are about what runs have written, after checking them.
 *
 * @throws {TypeError} for an unknown kind or member, a wrong entity, and for a change that two entries name.
 */
export function entryTriggersOf(process: string, on: unknown): readonly EntryTrigger[] {
  if (!Array.isArray(on)) return []
  const seen = new Set<string>()
  return (on as readonly unknown[]).flatMap((given, index) => {
    if (!isEntryTrigger(given)) return []
    const what = `on[${index}] of ${process}`
    requireMembers(given as object, MEMBERS, what)
    const { entry, entity } = given as Partial<Record<keyof EntryTrigger, unknown>>
    if (!EntityName.safeParse(entity).success)
      throw new TypeError(`${what}: entity must be the name of an entity, such as Invoice`)
    if (!Array.isArray(entry) || entry.length === 0)
      throw new TypeError(`${what}: entry must be an array of ${entryEventKinds.join(', ')}`)
    for (const kind of entry as readonly unknown[]) {
      if (!(entryEventKinds as readonly unknown[]).includes(kind))
        throw new TypeError(`${what}: entry must be an array of ${entryEventKinds.join(', ')}`)
      const change = `${String(entity)}.${String(kind)}`
      if (seen.has(change)) throw new TypeError(`${what}: ${change} is named twice`)
      seen.add(change)
    }
    return [given as EntryTrigger]
  })
}

/** Returns the routing keys of the events that start a run of the process. */
export const entryKeysOf = (triggers: readonly EntryTrigger[]): readonly string[] =>
  triggers.flatMap(({ entry, entity: Entity }) =>
    entry.map((Kind) => entryRoutingKey({ Entity, Kind })),
  )

/** Returns the initial data of the run that an event starts. */
export const entryChangeOf = (event: EntryEvent) => ({
  realm: event.Realm,
  entity: event.Entity,
  id: event.EntityID,
  entry: event.Kind,
  state: event.State,
  changed: [...event.Changed],
  at: event.At,
  process: event.Process,
  transaction: event.TransactionID,
  replay: event.ReplayID,
  step: event.StepName,
})
