/**
 * The built-in process that reads an object for whose change runs wait, and moves those on whose condition it meets.
 * A run of it is queued when a run begins to wait, and for each change of the object.
 *
 * L1  The wait is stored before the run of this process is queued, and the object is read after that. So a change either
 *     is seen by this reading, or its event finds the wait and causes one more.
 * L2  The id of a run is that of the change. So many waits for one object cost one call, or two if the same change is
 *     delivered more than once.
 * L3  The object reaches a run in the way an event does (run/events.ts): it also reaches one that is just about to wait.
 * L4  The call is sent through the gateway, and its response is classified like that of a step. So it respects the rate
 *     limits of its company, and waits while the credential must be renewed.
 */
import {
  type ProviderEntity,
  providerEntities,
  type ProviderEvent,
  ReportedEntityId,
} from '@integration-host/shared/contracts/provider-event'
import { hasCode } from '@integration-host/shared/errors'
import { z } from 'zod'
import type { Actor } from '../run/action.ts'
import { normalizedJson } from '../run/json-normalization.ts'
import type { StepOutcome } from '../run/progress.ts'
import { ONLY_RUN } from '../run/run-detail.ts'
import type { Run } from '../run/run.ts'
import { goesForward } from '../run/status.ts'
import type { Claim, TransactionSource } from '../run/transaction-source.ts'
import { waitingFor, type WatchedObject } from '../run/events.ts'
import { type BookObject, type ChangeSettings, LINKING_ENTITIES } from '../step/change-place.ts'
import { ofObject, retried } from '../step/built-in.ts'
import { defineProcess } from '../step/define-process.ts'
import { outlineOf, type ProcessDefinition } from '../step/definition.ts'
import { eventPlaces } from '../step/event.ts'
import { type Reading, readObject } from '../step/read-object.ts'
import { shortRedacted } from '../step/redacted-step.ts'
import { thrownText } from '../step/thrown-text.ts'
import type { TransitionPublisher } from '../worker/transition-publisher.ts'
import type { ChangeWaitRow, ChangeWaits } from './change-waits.ts'

export const CHANGE_LOOK = 'ChangeLook'
const OBJECT_DELETED = 'object_deleted'
const STEP = 'read'
const BY: Actor = { keyId: 'coordinator:change', person: null }
/** The maximum number of linked objects of a payment that are looked at. */
const MAX_LINKS = 1_000
/** The time from a change until its second is over, with a margin for the clocks of provider and coordinator. */
const SECOND_OVER_MS = 3_000
/** The pause before a run is looked at once more whose worker has not recorded yet that it waits. */
const NOT_WAITING_YET_MS = 1_000

const Looked = z.object({ Entity: z.enum(providerEntities), EntityID: ReportedEntityId })

type Source = Pick<TransactionSource, 'get' | 'signal' | 'failRun'>

export interface LooksDeps {
  readonly source: Pick<TransactionSource, 'queue'>
  readonly waits: Pick<ChangeWaits, 'begin' | 'hasAny' | 'hasWait'>
  readonly publisher: Pick<TransitionPublisher, 'publishSteps'>
  /** The definition of {@link CHANGE_LOOK}. */
  readonly process: ProcessDefinition
}

export type Looks = ReturnType<typeof createLooks>

/** Queues the runs that read objects. Every method throws `store_unavailable` if the store cannot be reached. */
export function createLooks({ source, waits, publisher, process: looking }: LooksDeps) {
  /** Queues a look. Returns its run, which may exist, and whether this run may have read the object already. */
  async function queue(
    id: string,
    { realm, entity, id: EntityID }: WatchedObject,
    NotBefore?: string,
  ): Promise<{ readonly run: Run | null; readonly mayHaveRead: boolean }> {
    const InitialData = { Entity: entity, EntityID }
    const transaction = { TransactionID: id, Realm: realm, InitialData }
    const [result] = await source.queue(outlineOf(looking), [
      { ...transaction, ...(NotBefore !== undefined && { NotBefore }) },
    ])
    if (result?.outcome === 'queued') publisher.publishSteps([result.run])
    const mayHaveRead = result?.outcome === 'exists' && result.run.Status !== 'Queued'
    return { run: result?.run ?? null, mayHaveRead }
  }
  async function changedObject(
    process: string,
    event: ProviderEvent,
    lookId: string,
  ): Promise<Run | null> {
    const { Realm: realm, EntityId: id, ChangedAt } = event
    const entity = providerEntities.find((name) => name === event.Entity)
    if (entity === undefined || !ReportedEntityId.safeParse(id).success) return null
    const object = { realm, entity, id }
    const isWanted = isLinking(entity)
      ? await waits.hasAny(realm)
      : await waits.hasWait(object, process)
    if (!isWanted) return null
    // All changes within a second have the same id. The object may have been read between two of them, so it is read
    // once more when the second is over.
    const look = await queue(lookId, object)
    if (!look.mayHaveRead) return look.run
    const after = new Date(Date.parse(ChangedAt) + SECOND_OVER_MS).toISOString()
    return (await queue(`${lookId}:again`, object, after)).run
  }
  return {
    /** Called before a run waits for a change of the object: stores the wait, and has the object read. */
    async begin(object: WatchedObject, { run }: Pick<Claim, 'run'>): Promise<void> {
      const { Process, TransactionID, ReplayID, StepName: Place, Version } = run
      const wait = { Process, TransactionID, ReplayID, Place, Version }
      const of = await waits.begin(object, wait)
      await queue(`${object.entity}-${object.id}/${object.realm}/${of}:${Version}`, object)
    },
    /**
     * Has an object read that was changed, or merged into another one, if a run of the process may wait for it. Resolves
     * with the run that reads it; `null` if there is none.
     */
    async changed(process: string, event: ProviderEvent): Promise<Run | null> {
      const look = await changedObject(process, event, event.Id)
      const { DeletedId } = event
      if (DeletedId === undefined) return look
      const merged = { ...event, EntityId: DeletedId }
      return (await changedObject(process, merged, `${event.Id}:merged`)) ?? look
    },
  }
}

export interface ChangeLookDeps {
  readonly source: Source
  readonly waits: Pick<ChangeWaits, 'of' | 'end'>
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly publisher: () => Pick<TransitionPublisher, 'publishSteps'>
}

type Read = (entity: ProviderEntity, id: string) => Promise<Reading>

/** Builds the process `ChangeLook`. */
export function createChangeLook({
  source,
  waits,
  processes,
  publisher,
}: ChangeLookDeps): ProcessDefinition {
  const definition = defineProcess(CHANGE_LOOK, {
    stepTimeoutSeconds: 1_200,
    retry: { maxAttempts: 20, baseMs: 5_000, capMs: 900_000 },
    retention: { completedDays: 1 },
  }).step(STEP, (step) => step.complete())

  /** Moves the run on. Returns whether the wait has ended. */
  async function settle(
    { Value: wait }: ChangeWaitRow,
    process: ProcessDefinition,
    object: BookObject | null,
  ): Promise<'ended' | 'waits' | 'early'> {
    const place = eventPlaces(process).find((one) => one.place === wait.Place)
    const change = process.steps.get(wait.Place)?.event?.change
    if (place === undefined || change === undefined) return 'early'
    const found = decide(process, change, object)
    if (found === 'waits') return 'waits'
    try {
      if ('data' in found) {
        const { TransactionID, ReplayID } = wait
        const event = { data: found.data, eventId: null }
        const act = { by: BY, reason: null, ifVersion: null }
        const { hasMoved, run } = await source.signal(place, TransactionID, ReplayID, event, act)
        if (hasMoved) publisher().publishSteps([run])
        return 'ended'
      }
      const { Process, TransactionID, ReplayID } = wait
      const run = (await source.get(Process, TransactionID, ReplayID, ONLY_RUN))?.run
      if (run === undefined || !goesForward(run.Status)) return 'ended'
      const waitsHere = run.Status === 'Waiting' && run.WaitingFor === waitingFor(place)
      if (!waitsHere) return run.StepName === wait.Place ? 'early' : 'ended'
      const { errorClass, error } = found
      const undoAt = process.undoesFailure ? wait.Place : undefined
      const failed = await source.failRun(run, run.Version, errorClass, error, undoAt)
      if (failed === null) return 'early'
      publisher().publishSteps([failed])
      return 'ended'
    } catch (error) {
      if (ENDED.some((code) => hasCode(error, code))) return 'ended'
      throw error
    }
  }

  async function lookAt(
    realm: string,
    looked: z.output<typeof Looked>,
    read: Read,
  ): Promise<StepOutcome> {
    const { Entity: entity, EntityID: id } = looked
    const objects: WatchedObject[] = [{ realm, entity, id }]
    const readings = new Map<string, Reading>()
    const readOnce = async (of: WatchedObject): Promise<Reading> => {
      const key = `${of.entity}-${of.id}`
      const reading = readings.get(key) ?? (await read(of.entity, of.id))
      readings.set(key, reading)
      return reading
    }
    if (isLinking(entity)) {
      const reading = await readOnce({ realm, entity, id })
      if ('end' in reading) return reading.end
      for (const link of linksOf(reading.object)) objects.push({ realm, ...link })
    }
    const counts = { waits: 0, ended: 0 }
    let isEarly = false
    for (const object of objects)
      for await (const row of waits.of(object)) {
        const reading = await readOnce(object)
        if ('end' in reading) return reading.end
        counts.waits += 1
        const process = processes.get(row.Value.Process)
        const result = process === undefined ? 'early' : await settle(row, process, reading.object)
        if (result === 'early') isEarly = true
        if (result !== 'ended') continue
        counts.ended += 1
        await waits.end(row)
      }
    return isEarly ? EARLY : { kind: 'completed', response: null, data: counts, endsRun: true }
  }

  return {
    ...definition,
    runBuiltIn: ({ run }, deps) =>
      ofObject(run, Looked, (realm, looked) =>
        lookAt(realm, looked, (entity, id) =>
          readObject({ realm, entity, id }, { process: definition, run }, deps),
        ),
      ),
  }
}

const isLinking = (entity: ProviderEntity): boolean =>
  (LINKING_ENTITIES as readonly ProviderEntity[]).includes(entity)

/** The rejections of a run that no longer waits. */
const ENDED = ['transaction_not_found', 'transaction_erased', 'transaction_purged'] as const

/** A run does not wait yet, or no replica with its definition has looked. It is looked at once more. */
const EARLY: StepOutcome = {
  ...retried('run_not_waiting', 'a run is not waiting yet, or its process is not loaded here'),
  retryAfterMs: NOT_WAITING_YET_MS,
}

type Decision =
  | 'waits'
  | { readonly data: ReturnType<typeof normalizedJson> }
  | { readonly errorClass: string; readonly error: string }

/** Decides what becomes of a run that waits for this object. */
function decide(
  process: ProcessDefinition,
  { entity, until, onDeleted }: ChangeSettings,
  object: BookObject | null,
): Decision {
  if (object === null)
    return onDeleted === 'continue'
      ? { data: null }
      : {
          errorClass: OBJECT_DELETED,
          error: `the object for which the run waits does not exist: ${entity}`,
        }
  try {
    const isReached: unknown = until(object)
    if (typeof isReached === 'boolean')
      return isReached ? { data: normalizedJson(object) } : 'waits'
    if (isReached instanceof Promise) isReached.catch(() => {})
    return { errorClass: 'step_threw', error: 'until must return true or false, and not a promise' }
  } catch (error) {
    return {
      errorClass: 'step_threw',
      error: shortRedacted(process, `until: ${thrownText(error)}`),
    }
  }
}

const Link = z.object({ TxnId: ReportedEntityId, TxnType: z.enum(providerEntities) })
const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [])

/** Returns the objects that a payment or credit memo names in `LinkedTxn`, in itself and in its lines. */
function linksOf(object: BookObject | null): { entity: ProviderEntity; id: string }[] {
  const links = [object, ...listOf(object?.['Line'])].flatMap((one) =>
    typeof one === 'object' && one !== null && 'LinkedTxn' in one ? listOf(one.LinkedTxn) : [],
  )
  const linked = new Map<string, { entity: ProviderEntity; id: string }>()
  for (const link of links.slice(0, MAX_LINKS)) {
    const { data } = Link.safeParse(link)
    if (data !== undefined)
      linked.set(`${data.TxnType}-${data.TxnId}`, { entity: data.TxnType, id: data.TxnId })
  }
  return [...linked.values()]
}
