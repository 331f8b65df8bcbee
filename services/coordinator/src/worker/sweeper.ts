/**
 * The local pull: republishes the step message of each overdue run, because the first message may have been lost. The
 * sweeper never runs a step itself: a step runs only after its message is delivered and its run is claimed.
 *
 * It polls every 15 s, and at once when the transaction source reports inserted rows. A run is published at growing
 * intervals, and only if the queue of its step is short: a long queue means that workers are slow and not that messages
 * are lost, so more messages would not help. The same holds for a lane (lanes.ts). If a step no longer exists in its
 * process, the run fails with this reason, because no worker would ever claim it.
 */
import { lanesOf } from '@integration-host/shared/contracts/topology'
import { TransactionID } from '@integration-host/shared/contracts/transaction'
import type { Timer } from '@integration-host/shared/process/clock'
import { outlineOf, type ProcessDefinition, stepUnknownError } from '../step/definition.ts'
import { eventPlaces } from '../step/event.ts'
import type { Run } from '../run/run.ts'
import type { StepRef, TransactionSource } from '../run/transaction-source.ts'
import { inBatches, type Periodic, startPolling } from './polling.ts'
import type { Lanes } from './lanes.ts'
import type { StepQueue } from './step-queue.ts'
import type { TransitionPublisher } from './transition-publisher.ts'
import type { Worker } from './worker.ts'

export interface SweeperDeps extends Periodic {
  readonly source: Pick<
    TransactionSource,
    'due' | 'runsAtUnknownStep' | 'failRun' | 'settleWaits' | 'watch'
  >
  readonly queue: Pick<StepQueue, 'waiting' | 'consumers'>
  readonly lanes: Pick<Lanes, 'of'>
  readonly publisher: Pick<TransitionPublisher, 'republishStep' | 'publishEvent' | 'publishStep'>
  readonly worker: Pick<Worker, 'isConsuming'>
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly prefetch: number
  /** Called with the number of messages that were republished. */
  readonly onSweep: (count: number) => void
}

const BATCH = 500
/** The milliseconds from a report of inserted rows to the poll, so that one poll finds the rows of many reports. */
const HINT_MS = 50

export function startSweeper(deps: SweeperDeps): AsyncDisposable {
  const { source, queue, lanes, publisher, worker, processes, log } = deps
  /** Returns the steps whose queue is short. Only their overdue runs are worth publishing again. */
  async function shortQueues(): Promise<StepRef[]> {
    const found: StepRef[] = []
    for (const { name, stepNames, version, deadlineMs } of processes.values()) {
      if (!worker.isConsuming(name)) continue
      for (const step of stepNames) {
        if (!isLong(await queue.waiting(name, step)))
          found.push({
            process: name,
            step,
            isFirst: step === stepNames[0],
            version,
            deadlineMs,
          })
      }
    }
    return found
  }

  const isLong = (waiting: number | null): boolean =>
    waiting === null || waiting > 2 * deps.prefetch

  /** Returns the long lanes of the processes whose runs may go to a lane, as `<Process>.<lane>`. */
  async function longLanesOf(runs: readonly Run[]): Promise<ReadonlySet<string>> {
    const mayUseLanes = runs.filter(({ Realm, Priority }) => Realm !== null || Priority === 'high')
    const found = new Set<string>()
    for (const name of new Set(mayUseLanes.map(({ Process }) => Process)))
      for (const lane of lanesOf(processes.get(name)?.stepNames ?? []))
        if (isLong(await queue.waiting(name, lane))) found.add(`${name}.${lane}`)
    return found
  }

  /**
   * Whether more runs may be overdue than the last poll has published. It becomes true if a poll publishes its maximum
   * number of runs, and false if a poll covers all steps and finds fewer runs.
   */
  let isMoreDue = false

  /**
   * Publishes overdue runs. Resolves with false if the next poll must follow soon: because more runs are overdue than
   * one poll may publish, or because no queue could be checked (no process is running, or the broker is unavailable).
   */
  async function poll(): Promise<boolean> {
    const hasSettled = await settleWaits()
    const steps = await shortQueues()
    if (steps.length === 0) return false
    // Later polls publish the rest when the queues are short.
    const isCapped = !(await inBatches(async (size) => {
      const runs = await source.due(steps, size)
      const longLanes = await longLanesOf(runs)
      // Each message counts for the lane of the next run of its company, so all of them begin in this turn.
      const published = runs.flatMap((run) =>
        longLanes.has(`${run.Process}.${lanes.of(run)}`) ? [] : [republish(run)],
      )
      await Promise.all(published)
      if (published.length > 0) {
        log.info({ count: published.length }, 'sweeper republished the messages of overdue steps')
        deps.onSweep(published.length)
      }
      return runs.length
    }))
    await failRunsAtUnknownStep()
    const all = [...processes.values()].reduce((sum, { stepNames }) => sum + stepNames.length, 0)
    isMoreDue = isCapped || (isMoreDue && steps.length < all)
    return hasSettled && !isMoreDue
  }

  /**
   * Moves runs on that wait for an event which was received, or whose time is over. The queues do not matter: an ended wait
   * must not become longer because a step is slow. Resolves with false if more runs may be overdue.
   */
  async function settleWaits(): Promise<boolean> {
    const places = [...processes.values()].flatMap(eventPlaces)
    if (places.length === 0) return true
    return inBatches(async (limit) => {
      const moved = await source.settleWaits(places, { limit })
      await Promise.all(moved.map((run) => publisher.publishStep(run)))
      return moved.length
    })
  }

  /** Fails overdue runs whose step no longer exists in the process. */
  async function failRunsAtUnknownStep(): Promise<void> {
    const running = [...processes.values()].filter(({ name }) => worker.isConsuming(name))
    const consumed = new Map<string, boolean>()
    for (const run of await source.runsAtUnknownStep(running.map(outlineOf), BATCH)) {
      const definition = processes.get(run.Process)
      if (definition === undefined) continue
      const { Process, StepName, Version } = run
      const where = `${Process}.${StepName}`
      if (!consumed.has(where)) consumed.set(where, await isConsumed(Process, StepName))
      if (consumed.get(where) === true) continue
      const error = stepUnknownError(run, definition)
      // The step has no queue with a consumer, so the undo begins at the end of the process.
      const isUndone = definition.undoesFailure || run.Status === 'Undoing'
      const undoAt = isUndone ? definition.stepNames.at(-1) : undefined
      const failed = await source.failRun(run, Version, 'step_unknown', error, undoAt)
      if (failed === null) continue
      log.warn(
        { process: Process, step: StepName },
        'failed a run at a step that its process does not have',
      )
      await publisher.publishStep(failed)
    }
  }

  /**
   * Whether any replica consumes the queue of this step. During a rolling deployment, another replica may run a version
   * of the process that still has the step.
   */
  async function isConsumed(process: string, step: string): Promise<boolean> {
    const consumers = await queue.consumers(process, step)
    if (consumers !== null) return consumers > 0
    // `null` means either that the queue does not exist, and therefore has no consumer, or that the broker is
    // unavailable. The count of a queue that certainly exists distinguishes the two cases. While the broker is
    // unavailable, the step counts as consumed.
    const first = processes.get(process)?.stepNames[0]
    return first === undefined || (await queue.waiting(process, first)) === null
  }

  async function republish(run: Run): Promise<void> {
    // Another program has inserted this row, and its id is invalid. A step message cannot contain an invalid id, so no
    // worker could ever claim the run.
    if (!TransactionID.safeParse(run.TransactionID).success) {
      const failed = await source.failRun(
        run,
        run.Version,
        'transaction_id_invalid',
        'TransactionID must have 1 to 128 characters, none of them a control character',
      )
      if (failed !== null) publisher.publishEvent(failed)
      return
    }
    await publisher.republishStep(run)
  }

  const { clock } = deps
  const polling = startPolling({ ...deps, task: 'sweeper', poll })
  let hinted: Timer | null = null
  source.watch(() => {
    hinted ??= clock.setTimeout(() => {
      hinted = null
      polling.pollSoon()
    }, HINT_MS)
    hinted.unref()
  })
  return polling
}
