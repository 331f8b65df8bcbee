/** The places at which a run waits for a change in the books: `.change(name, options)` of a process. */
import {
  type ProviderEntity,
  providerEntities,
  providerOperations,
  providerRoutingKey,
  ReportedEntityId,
} from '@integration-host/shared/contracts/provider-event'
import type { Json } from '../run/json-normalization.ts'
import type { StepOutcome } from '../run/progress.ts'
import { type ProcessDefinition, requireMembers, requirePlaceName } from './definition.ts'
import { type EnteredStep, enteredMembers, placeFailed } from './entered.ts'
import { type EventSettings, requireTimeout, type WaitOptions } from './event.ts'
import type { AnyStep, Entered, ProcessSettings } from './step.ts'
import { thrownText } from './thrown-text.ts'

/** An object as the provider returns it, for example an invoice with its `Balance`. */
export type BookObject = Readonly<Record<string, Json>>

/** The options of a wait for a change. */
export interface ChangeOptions extends WaitOptions {
  /** The kind of the object, in the spelling of the provider's API. */
  readonly entity: ProviderEntity
  /**
   * Returns whether the object has the state for which the run waits. It is called with the object as the provider
   * returns it: once when the run gets here, and after each change of the object. It must be synchronous and depend on
   * the object only.
   */
  readonly until: (object: BookObject) => boolean
  /**
   * What becomes of a run whose object does not exist any more. `fail` (the default): it fails as `object_deleted`.
   * `continue`: it goes on, and the data is `null`.
   */
  readonly onDeleted?: 'fail' | 'continue'
}

/** What the types of a chain add, because they know what `id` and `when` get. */
type GivenOptions = ChangeOptions & Pick<AnyStep, 'when'> & { readonly id: ChangeSettings['id'] }

/** A wait for a change as a definition stores it. */
export interface ChangeSettings {
  readonly entity: ProviderEntity
  /** Returns the id of the object. */
  readonly id: (entered: never) => string
  readonly until: (object: BookObject) => boolean
  readonly onDeleted: 'fail' | 'continue'
}

/**
 * The entities whose objects pay or credit other objects. Whether the provider reports a change of an invoice when a
 * payment changes its `Balance` is not documented (docs/intuit.md, "Open"). So a change of one of these also counts as a
 * change of the objects that it links.
 */
export const LINKING_ENTITIES = [
  'Payment',
  'CreditMemo',
  'BillPayment',
] as const satisfies readonly ProviderEntity[]

const MEMBERS = new Set<string>([
  'entity',
  'id',
  'until',
  'onDeleted',
  'timeoutSeconds',
  'onTimeout',
  'when',
] satisfies (keyof GivenOptions)[])

/** Returns the place as it is stored in the definition. @throws {TypeError} if the name or an option is not valid */
export function changeStep(process: string, name: string, options: GivenOptions): AnyStep {
  requirePlaceName(process, name, 'a change')
  const what = `change ${name} of ${process}`
  requireMembers(options, MEMBERS, what)
  const { entity, id, until, onDeleted = 'fail', when } = options
  if (!providerEntities.includes(entity))
    throw new TypeError(`entity of ${what} must be one of ${providerEntities.join(', ')}`)
  if (typeof id !== 'function') throw new TypeError(`id of ${what} must be a function`)
  if (typeof until !== 'function') throw new TypeError(`until of ${what} must be a function`)
  if (onDeleted !== 'fail' && onDeleted !== 'continue')
    throw new TypeError(`onDeleted of ${what} must be 'fail' or 'continue'`)
  const event: EventSettings = {
    data: null,
    ...requireTimeout(options, what),
    change: { entity, id, until, onDeleted },
  }
  // The worker waits at the place instead of calling the function.
  return Object.assign(() => {}, { event, ...(when !== undefined && { when }) })
}

/** Returns the outcome of a run that enters the place: it waits for the object, or it fails. */
export function enterChange(
  { timeoutMs }: EventSettings,
  { entity, id: idOf }: ChangeSettings,
  entered: EnteredStep,
  settings: ProcessSettings,
): StepOutcome {
  const { Realm: realm } = entered.claim.run
  if (realm === null)
    return {
      kind: 'failed',
      errorClass: 'realm_missing',
      error: 'the run has no Realm, so it has no books',
      response: null,
    }
  let id: unknown
  try {
    id = (idOf as (given: Entered<unknown, AnyStep | null>) => unknown)(
      enteredMembers(entered, settings),
    )
  } catch (error) {
    return placeFailed(entered, `id: ${thrownText(error)}`)
  }
  if (id instanceof Promise) id.catch(() => {})
  const checked = ReportedEntityId.safeParse(id)
  return checked.success
    ? { kind: 'parked', timeoutMs, ask: null, watched: { realm, entity, id: checked.data } }
    : placeFailed(entered, 'id must return the id of an object: 1-20 letters, digits, - . _ ~ or :')
}

/** Returns the routing keys of the events that may end the waits of a process. */
export const watchedKeysOf = ({ steps }: Pick<ProcessDefinition, 'steps'>): readonly string[] => {
  const entities = [...steps.values()].flatMap(({ event }) => event?.change?.entity ?? [])
  return entities.length === 0
    ? []
    : [...new Set([...entities, ...LINKING_ENTITIES])].flatMap((Entity) =>
        providerOperations.map((Operation) =>
          providerRoutingKey({ Provider: 'intuit', Entity, Operation }),
        ),
      )
}
