import { namesInstead } from '@integration-host/shared/similar-name'
import { isDeepStrictEqual } from 'node:util'
import type { SignalResponse } from '@integration-host/shared/contracts/run'
import type { QueueTransaction } from '@integration-host/shared/contracts/transaction'
import { errorCodes, IntegrationError, quotaExceeded } from '@integration-host/shared/errors'
import { isStartable, outlineOf, type ProcessDefinition } from '../step/definition.ts'
import { eventPlaces } from '../step/event.ts'
import { acceptedKey } from '../run/concurrency.ts'
import type { DeadLetterStore } from '../dead-letter/dead-letter-store.ts'
import { notActive } from '../run/errors.ts'
import type { NewEvent, SignalResult } from '../run/events.ts'
import { checkedInput } from '../run/input-check.ts'
import { normalizedJson } from '../run/json-normalization.ts'
import {
  type Act,
  type Actor,
  type ActionWithoutChange,
  recordWithoutChange,
} from '../run/action.ts'
import { DELAYED_RUNS_PER_KEY } from '../run/start-time.ts'
import type { Settlement } from '../run/operator-actions.ts'
import type { PauseStore } from '../run/pause.ts'
import type { Run } from '../run/run.ts'
import type {
  Limited,
  NewTransaction,
  QueueResult,
  ReplayRequest,
  StartOnArrival,
  TransactionSource,
} from '../run/transaction-source.ts'
import { goesForward } from '../run/status.ts'
import type { StepsInFlight } from './steps-in-flight.ts'
import type { TransitionPublisher } from './transition-publisher.ts'
import type { Worker } from './worker.ts'

type OfRun = readonly [transactionId: string, replayId: number | null, act: Act]
type RunAndAct = readonly [process: string, ...OfRun]

/** `errors` contains the path and the violated rule of each problem in the initial data. */
export type QueueOutcome =
  | QueueResult
  | Limited
  | { readonly outcome: 'invalid'; readonly errors: readonly string[] }

export interface RunActionsDeps {
  readonly source: TransactionSource
  readonly deadLetterStore: Pick<DeadLetterStore, 'counts'>
  readonly pauses: PauseStore
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly publisher: Pick<
    TransitionPublisher,
    'publishEvent' | 'publishStep' | 'publishSteps' | 'written'
  >
  readonly stepsInFlight: Pick<StepsInFlight, 'abortCancelled'>
  readonly worker: Pick<Worker, 'queueAndStart' | 'setPaused'>
}

const WAKE_BATCH = 200
/**
 * The maximum number of transactions that are passed to the source at once. The runs of a batch start while the next
 * batch is stored. If a batch cannot be stored, the runs of the earlier batches continue.
 */
const QUEUE_BATCH = 500

/** Returns the error for initial data that does not match the `input` of its process. */
export const inputInvalid = (errors: readonly string[]): IntegrationError =>
  new IntegrationError('input_invalid', errors.join('; '), { members: { errors } })

/** @throws {IntegrationError} `step_not_found` if the process has no step of this name */
export function requireStepOf({ name, steps }: ProcessDefinition, step: string): void {
  if (steps.has(step)) return
  const others = namesInstead(step, steps.keys(), 'steps')
  throw new IntegrationError('step_not_found', `${name} has no step ${step}${others}`)
}

const DATA_OF_EVENT = { name: 'Data', what: 'the schema of the event' }

/**
 * Decides what the sender of an event is told that was not the first one of its place.
 *
 * @throws {IntegrationError} `event_already_received` or `transaction_not_active` unless the event repeats the first one
 */
function requireRepetition(result: SignalResult, event: NewEvent, withData: boolean): void {
  const { item, run } = result
  if (item?.Sender === undefined || item.Status === 'Skipped')
    throw notActive(goesForward(run.Status) ? 'the run has gone on without the event' : undefined)
  const isRepetition =
    event.eventId === null
      ? isDeepStrictEqual(item.Data, event.data)
      : item.Sender.EventID === event.eventId
  if (isRepetition) return
  const { Item } = signalResponse(result, withData)
  throw new IntegrationError(
    'event_already_received',
    `the run has received the event ${item.StepName} at ${item.FinishedAt}`,
    { members: { Item } },
  )
}

function signalResponse({ run, item }: SignalResult, withData: boolean): SignalResponse {
  const { Process, TransactionID, ReplayID, Status, Version } = run
  if (item === null) throw new Error('an accepted event has an item')
  const { StepName, Data, FinishedAt, Sender } = item
  const shown = { StepName, Status: item.Status, FinishedAt, ...(Sender && { Sender }) }
  return {
    Process,
    TransactionID,
    ReplayID,
    Status,
    Version,
    Item: { ...shown, ...(withData && { Data }) },
  }
}

/** Returns the error for a delayed transaction whose key has as many delayed runs as one key may have. */
export const tooManyDelayedRuns = (): IntegrationError =>
  quotaExceeded('runs that wait for their start', DELAYED_RUNS_PER_KEY)

/** Returns the transaction with the concurrency key of its run, or the problems with its initial data. */
function checkedTransaction(
  definition: ProcessDefinition,
  transaction: QueueTransaction,
): NewTransaction | { readonly errors: readonly string[] } {
  if (definition.input === null && definition.concurrency === null) return transaction
  const accepted = acceptedKey(definition, transaction.InitialData, transaction.Realm ?? null)
  if ('problems' in accepted) return { errors: accepted.problems }
  return accepted.key === null ? transaction : { ...transaction, ConcurrencyKey: accepted.key }
}

export type RunActions = ReturnType<typeof createRunActions>

/**
 * The operations that the HTTP API offers on transactions. The result of each is durable when its promise resolves.
 * Each operation with an {@link Act} is recorded in the action log, even if the source rejects it because of the state
 * of the run.
 */
export function createRunActions(deps: RunActionsDeps) {
  const { source, pauses, processes, publisher, stepsInFlight, worker } = deps
  const process = (name: string): ProcessDefinition => {
    const definition = processes.get(name)
    if (definition === undefined)
      throw new IntegrationError('process_not_found', `no process ${name} is loaded`)
    return definition
  }
  const requireClientData = (definition: ProcessDefinition): void => {
    if (!isStartable(definition))
      throw new IntegrationError(
        'process_built_in',
        'only the coordinator itself makes the initial data of this process',
      )
  }
  /**
   * Executes an action. If the source rejects the action, the rejection is recorded durably before the error is thrown.
   * An action on a transaction that does not exist is not recorded, because otherwise callers could fill the log with
   * invented ids.
   */
  const attempt = async <Result>(
    action: Omit<ActionWithoutChange, 'Outcome'>,
    execute: () => Promise<Result>,
  ): Promise<Result> => {
    const { act } = action
    try {
      return await execute()
    } catch (error) {
      if (
        act.operation === undefined && // a bulk operation counts its rejections itself
        error instanceof IntegrationError &&
        errorCodes[error.code].status < 500 &&
        error.code !== 'transaction_not_found'
      )
        await recordWithoutChange(source, { ...action, Outcome: error.code })
      throw error
    }
  }
  /**
   * Publishes the events of the new runs. Also publishes the step messages of those runs that were not claimed when
   * they were queued.
   */
  const publishQueued = (results: readonly (QueueResult | Limited)[]): void => {
    const queued = results.flatMap((result) => (result.outcome === 'queued' ? [result] : []))
    for (const { run, claim } of queued) if (claim !== undefined) publisher.publishEvent(run)
    publisher.publishSteps(queued.flatMap(({ run, claim }) => (claim === undefined ? [run] : [])))
  }
  /** Executes an action on a run, and publishes the run that it returns. */
  const actOn = async (
    kind: ActionWithoutChange['kind'],
    [Process, TransactionID, ReplayID, act]: RunAndAct,
    execute: () => Promise<Run>,
  ): Promise<Run> => {
    const run = await attempt({ kind, act, Process, TransactionID, ReplayID }, execute)
    publisher.publishSteps([run])
    return run
  }
  const requireKnown = async (name: string): Promise<void> => {
    if (processes.has(name)) return
    if ((await source.storedProcesses()).has(name)) return
    if ((await deps.deadLetterStore.counts()).has(name)) return
    throw new IntegrationError(
      'process_not_found',
      `no process ${name} is loaded, and there are no runs of it`,
    )
  }
  const operate: TransactionSource['operate'] = (kind, of, ...run) =>
    actOn(kind, [of.name, ...run], () => source.operate(kind, of, ...run))
  return {
    /**
     * Returns the definition of a process.
     * @throws {IntegrationError} `process_not_found` if no process of this name is loaded.
     */
    process,
    /**
     * Resolves if a process of this name is loaded, or has runs or dead letters. If the process is not loaded, its runs
     * can still be read and cancelled, and its dead letters can still be read and deleted.
     *
     * @throws {IntegrationError} `process_not_found`.
     */
    requireKnown,
    /** Returns the steps of a process in order; an empty list if the process is not loaded. */
    stepNames: (name: string): readonly string[] => processes.get(name)?.stepNames ?? [],
    /**
     * Queues the transactions whose initial data matches the `input` of the process, and returns the results in the same
     * order. If `by` is given, each newly queued transaction is recorded as an action.
     */
    async queue(
      name: string,
      transactions: readonly QueueTransaction[],
      by?: Actor,
    ): Promise<readonly QueueOutcome[]> {
      const definition = process(name)
      requireClientData(definition)
      const checks = transactions.map((transaction) => checkedTransaction(definition, transaction))
      const valid = checks.flatMap((check) => ('errors' in check ? [] : [check]))
      const results: (QueueResult | Limited)[] = []
      for (let at = 0; at < valid.length; at += QUEUE_BATCH) {
        const batch = valid.slice(at, at + QUEUE_BATCH)
        const store = async (start?: StartOnArrival) => {
          const stored = await source.queue(outlineOf(definition), batch, by, start)
          publishQueued(stored)
          return stored
        }
        // Runs of later batches do not start on arrival, because they would overtake runs whose messages wait.
        results.push(
          ...(at === 0
            ? await worker.queueAndStart(definition, batch.length, store)
            : await store()),
        )
      }
      // The first step messages are sent before the response is built, because building it takes longer. The response
      // does not wait for the calls of runs that have started: a worker that dies in such a call would take the response
      // with it.
      const hasStarted = results.some(({ claim }) => claim !== undefined)
      if (!hasStarted) await publisher.written()
      const next = results.values()
      return checks.map(
        (check): QueueOutcome =>
          'errors' in check
            ? { outcome: 'invalid', errors: check.errors }
            : (next.next().value as QueueOutcome), // there is one result for each valid transaction
      )
    },
    async replay(
      name: string,
      TransactionID: string,
      request: ReplayRequest,
      act: Act,
    ): Promise<Run> {
      const definition = process(name)
      const { fromStep, latest: ReplayID, initialData } = request
      let concurrencyKey: string | null = null
      if (initialData !== undefined) {
        requireClientData(definition)
        const accepted = acceptedKey(definition, initialData, null)
        if ('problems' in accepted) throw inputInvalid(accepted.problems)
        // The realm of the run is not known here. The first claim of the new run sets its key.
        if (definition.concurrency?.byRealm !== true) concurrencyKey = accepted.key
      }
      if (fromStep !== null) requireStepOf(definition, fromStep)
      return actOn('replay', [name, TransactionID, ReplayID, act], () =>
        source.replay(outlineOf(definition), TransactionID, { ...request, concurrencyKey }, act),
      )
    },
    resume: async (name: string, ...of: OfRun): Promise<Run> =>
      operate('resume', outlineOf(process(name)), ...of),
    /** Begins the undo of the latest run of a transaction. */
    undo: async (name: string, ...of: OfRun): Promise<Run> => operate('undo', process(name), ...of),
    async cancel(name: string, ...of: OfRun): Promise<Run> {
      await requireKnown(name)
      const run = await operate('cancel', { name }, ...of)
      stepsInFlight.abortCancelled(run)
      return run
    },
    /** Makes a waiting run due at once. The run may wait for its next attempt or for a credential. */
    retry: async (name: string, ...of: OfRun): Promise<Run> =>
      operate('retry', process(name), ...of),
    /** Settles the doubt about the due step of a run. */
    async settle(
      name: string,
      id: string,
      replayId: number | null,
      settlement: Settlement,
      act: Act,
    ): Promise<Run> {
      const outline = outlineOf(process(name))
      return actOn('settle', [name, id, replayId, act], () =>
        source.settle(outline, id, replayId, settlement, act),
      )
    },
    /**
     * Sends an event to a run. Resolves with the event that the place keeps, which an earlier request may have sent.
     *
     * @param withData whether the response, or the error `event_already_received`, may contain the data of that event
     * @throws {IntegrationError} `event_not_found`, `input_invalid`, `event_already_received`, `transaction_not_active`, …
     */
    async signal(
      name: string,
      TransactionID: string,
      ReplayID: number | null,
      placeName: string,
      { data, eventId }: NewEvent,
      act: Act,
      withData: boolean,
    ): Promise<SignalResponse> {
      const definition = process(name)
      const events = eventPlaces(definition).filter(({ kind }) => kind === 'event')
      const place = events.find((one) => one.place === placeName)
      if (place === undefined) {
        const known = events.map((one) => one.place)
        const others = namesInstead(placeName, known, 'events')
        throw new IntegrationError('event_not_found', `${name} has no event ${placeName}${others}`)
      }
      const schema = definition.steps.get(placeName)?.event?.data ?? null
      const checked = checkedInput(schema, data, DATA_OF_EVENT)
      if ('problems' in checked) throw inputInvalid(checked.problems)
      const event = { data: normalizedJson(checked.input), eventId }
      const signalled = await attempt(
        { kind: 'signal', act, Process: name, TransactionID, ReplayID },
        async () => {
          const result = await source.signal(place, TransactionID, ReplayID, event, act)
          if (!result.isAccepted) requireRepetition(result, event, withData)
          return result
        },
      )
      if (signalled.hasMoved) publisher.publishSteps([signalled.run])
      return signalResponse(signalled, withData)
    },
    async setPaused(name: string, isPaused: boolean, act: Act): Promise<void> {
      await pauses.setPaused(process(name).name, isPaused, act)
      worker.setPaused(await pauses.paused())
    },
    /** Makes the runs that wait for this credential due again. */
    async wake(credential: string): Promise<void> {
      for (;;) {
        const woken = await source.wake(credential, WAKE_BATCH)
        await Promise.all(woken.map((run) => publisher.publishStep(run)))
        if (woken.length < WAKE_BATCH) return
      }
    },
  }
}
