/**
 * The events for which runs wait: `.event(name)` of a process.
 *
 * V1  A run keeps one event for each place: the first. The event is the item of the place. It has the status `Received`
 *     until the run gets there, and survives a cancel, a deadline and a resume.
 * V2  A run that enters the place always becomes `Waiting` first. It has no lease and no step message then.
 * V3  An event locks the run. It moves a run on that waits for it, and is stored for every other active run. After a run
 *     has become `Waiting`, its worker therefore looks once more for an event that was stored while the run had its lease;
 *     the sweeper does so if that worker was lost.
 * V4  Event, timeout, cancel and deadline are decided by the row of the run: the first to commit wins.
 */
import type { ProviderEntity } from '@integration-host/shared/contracts/provider-event'
import type { Sender } from '@integration-host/shared/contracts/transaction'
import type { Act } from './action.ts'
import { idempotencyKey, type Item } from './item.ts'
import type { Json } from './json-normalization.ts'
import type { Run, RunKey } from './run.ts'
import { goesForward, WAITS_FOR_CHANGE, WAITS_FOR_EVENT } from './status.ts'
import type { RunState } from './transaction-source.ts'
import { leftPlace, next, type StoredRun, type Times, undoing } from './transitions.ts'

export const EVENT_TIMEOUT = 'event_timeout'
export const EVENT_TIMED_OUT = 'no event was received in time'
/**
 * The longest time after which the sweeper looks at a waiting run. Without it, nothing would find a run whose process
 * no longer has the place.
 */
export const EVENT_RECHECK_MS = 86_400_000

/** A place at which runs wait for an event. */
export interface EventPlace {
  /** What runs wait for: an event that a client sends (the default), or a change in the books. */
  readonly kind?: 'event' | 'change'
  readonly process: string
  readonly place: string
  /** The place after it; `null` if the run is completed with it. */
  readonly next: string | null
  /** What becomes of a run whose time is over: it fails, is undone, or goes on without data. */
  readonly onTimeout: 'fail' | 'undo' | 'continue'
}

export interface NewEvent {
  readonly data: Json
  /** The id that the sender gave to the event; `null` if it gave none. */
  readonly eventId: string | null
  /** Returns the data in the form in which it is stored with this run; without it, `data` is stored. */
  readonly dataFor?: (run: RunKey) => Json
}

/** Returns the data of an event in the form in which it is stored with a run. */
export const storedData = ({ data, dataFor }: NewEvent, run: RunKey): Item['Data'] =>
  (dataFor === undefined ? data : dataFor(run)) as Item['Data']

export interface SignalResult {
  /** Whether the event was the first one of the place, and was stored. */
  readonly isAccepted: boolean
  /** Whether the run has waited for the event, and has moved on. */
  readonly hasMoved: boolean
  readonly run: RunState & Pick<Run, 'Realm'>
  /** The item of the place; `null` if the run has none. */
  readonly item: Pick<Item, 'StepName' | 'Status' | 'Data' | 'FinishedAt' | 'Sender'> | null
}

/** The part of the port `TransactionSource` that delivers events to runs. A `replayId` of `null` means the latest run. */
export interface Events {
  /**
   * Stores an event as the item of its place, if the run is active and the place has neither an event nor another result
   * yet. If the run waits for the event, it also moves on. Otherwise nothing changes, and the caller decides by run and
   * item what the sender is told.
   *
   * @throws {IntegrationError} `transaction_not_found`, `transaction_purged`
   */
  signal(
    place: EventPlace,
    transactionId: string,
    replayId: number | null,
    event: NewEvent,
    act: Act,
  ): Promise<SignalResult>
  /**
   * Moves waiting runs on whose event was received, or whose time is over, and returns them. Looks at one run, or at most
   * at `limit` overdue runs that wait at these places. A run that must go on waiting is swept again when its time is over.
   */
  settleWaits(places: readonly EventPlace[], which: RunKey | { limit: number }): Promise<Run[]>
}

/** Whether an item allows no (further) event for its place. */
const isDecided = ({ Status }: Item): boolean => DECIDED.has(Status)
export const decidedStatuses = ['Received', 'Completed', 'Copied', 'Skipped', 'Undone'] as const
const DECIDED: ReadonlySet<string> = new Set(decidedStatuses)

export const senderOf = ({ by, reason }: Act, { eventId }: NewEvent): Sender => ({
  KeyID: by.keyId,
  Person: by.person,
  Reason: reason,
  EventID: eventId,
})

const itemOf = ({ items }: StoredRun, place: string): Item | undefined =>
  items.find(({ StepName }) => StepName === place)
const withItem = (stored: StoredRun, item: Item): StoredRun => ({
  ...stored,
  items: [...stored.items.filter(({ StepName }) => StepName !== item.StepName), item],
})

/** Returns the run after it has received an event; `null` if the event is not accepted. */
export function signalled(
  stored: StoredRun,
  place: EventPlace,
  event: NewEvent,
  act: Act,
  times: Times,
): StoredRun | null {
  const { header } = stored
  const known = itemOf(stored, place.place)
  if (!goesForward(header.Status) || (known !== undefined && isDecided(known))) return null
  const at = new Date(times.now).toISOString()
  const received: Item = {
    ...known,
    StepName: place.place,
    Status: 'Received',
    Attempt: 0,
    IdempotencyKey: idempotencyKey(header, place.place),
    ResponseStatus: null,
    ResponseBody: null,
    Data: storedData(event, header),
    Error: null,
    StartedAt: known?.StartedAt ?? at,
    FinishedAt: at,
    Sender: senderOf(act, event),
  }
  const kept = withItem(stored, received)
  return isWaitingFor(header, place) ? movedOn(kept, place, times) : kept
}

/** Returns the `WaitingFor` of the runs that wait at this place. */
export const waitingFor = ({ kind, place }: Pick<EventPlace, 'kind' | 'place'>): string =>
  `${kind === 'change' ? WAITS_FOR_CHANGE : WAITS_FOR_EVENT}${place}`

const isWaitingFor = ({ Status, WaitingFor }: Run, place: EventPlace): boolean =>
  Status === 'Waiting' && WaitingFor === waitingFor(place)

/** Returns a run that has waited at this place, after its event or its timeout: the next place is due. */
function movedOn(
  stored: StoredRun,
  { place, next: following }: EventPlace,
  times: Times,
): StoredRun {
  const item = itemOf(stored, place)
  const done = item === undefined ? stored : withItem(stored, { ...item, Status: 'Completed' })
  return leftPlace(done, place, following, times)
}

/**
 * Returns a waiting run after its worker or the sweeper has looked at it: it moves on, or fails, or is looked at again
 * when its time is over. `null` if it does not wait at one of these places.
 */
export function waitSettled(
  stored: StoredRun,
  places: readonly EventPlace[],
  times: Times,
): StoredRun | null {
  const { header } = stored
  const place = places.find((one) => one.process === header.Process && isWaitingFor(header, one))
  if (place === undefined) return null
  const item = itemOf(stored, place.place)
  if (item?.Status === 'Received') return movedOn(stored, place, times)
  const endsAt = header.NextAttemptAt === null ? Infinity : Date.parse(header.NextAttemptAt)
  if (endsAt > times.now)
    return {
      ...stored,
      nextSweepAt: Math.min(endsAt, times.now + EVENT_RECHECK_MS),
      sweepCount: 0,
    }
  const at = new Date(times.now).toISOString()
  const ended =
    item === undefined
      ? stored
      : withItem(stored, { ...item, Status: 'Failed', Error: EVENT_TIMEOUT, FinishedAt: at })
  if (place.onTimeout === 'continue') return movedOn(ended, place, times)
  const failure = { ErrorClass: EVENT_TIMEOUT, LastError: EVENT_TIMED_OUT }
  if (place.onTimeout === 'undo') return next(ended, { ...undoing(times.now), ...failure }, times)
  return next(
    ended,
    { ...failure, Status: 'Failed', NextAttemptAt: null, WaitingFor: null, CompletedAt: at },
    times,
  )
}

/** An object in the books of a company, for whose change a run waits. */
export interface WatchedObject {
  readonly realm: string
  readonly entity: ProviderEntity
  readonly id: string
}
