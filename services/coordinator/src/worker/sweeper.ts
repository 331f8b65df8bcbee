/**
 * The local pull: publishes the step message of each overdue run again, because its first message may have been lost.
 * The sweeper never runs a step itself: a step runs only after its message was delivered and the run was claimed.
 *
 * It polls every 15 s, and at once when the transaction source reports inserted rows. Each run is published at growing
 * intervals, and only if the queue of its step is short: a long queue means slow workers, not lost messages,
 * and more messages would not help. A run at a step that no longer exists in its process is marked as failed
 * with the reason, because no worker would ever claim the run.
 */
import { TransactionID } from '@integration-host/shared/contracts/transaction'
import type { Logger } from '@integration-host/shared/observability/logger'
import { outlineOf, type ProcessDefinition } from '../process/definition.ts'
import type { Run } from '../transaction/run.ts'
import type { StepRef, TransactionSource } from '../transaction/transaction-source.ts'
import { startPolling } from './polling.ts'
import type { StepQueue } from './step-queue.ts'
import type { TransitionPublisher } from './transition-publisher.ts'
import type { Worker } from './worker.ts'

export interface SweeperDeps {
  readonly source: Pick<TransactionSource, 'due' | 'runsAtUnknownStep' | 'failRun' | 'watch'>
  readonly queue: Pick<StepQueue, 'waiting' | 'consumers'>
  readonly publisher: Pick<TransitionPublisher, 'republishStep' | 'publishEvent'>
  readonly worker: Pick<Worker, 'isConsuming'>
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly log: Logger
  readonly random: () => number
  /** `LOCAL_PULL_SECONDS`, in milliseconds. */
  readonly intervalMs: number
  readonly prefetch: number
  /** Called with the number of messages that were published again. */
  readonly onSweep: (count: number) => void
}

const BATCH = 500
/** The maximum number of batches that one poll publishes. The rest follows when the queues are short again. */
const MAX_BATCHES = 10
/** Milliseconds from a report of inserted rows to the poll, so that one poll finds all rows inserted meanwhile. */
const HINT_MS = 50

export function startSweeper(deps: SweeperDeps): AsyncDisposable {
  const { source, queue, publisher, worker, processes, log } = deps
  /** Its abort ends the pause before the next poll. */
  let hint = new AbortController()
  let hinted: NodeJS.Timeout | null = null
  source.watch(() => {
    hinted ??= setTimeout(() => {
      hinted = null
      hint.abort()
    }, HINT_MS).unref()
  })

  /** Returns the steps whose queue is short, so that publishing their overdue runs again is useful. */
  async function shortQueues(): Promise<StepRef[]> {
    const found: StepRef[] = []
    for (const { name, stepNames } of processes.values()) {
      if (!worker.isConsuming(name)) continue
      for (const step of stepNames) {
        const waiting = await queue.waiting(name, step)
        if (waiting !== null && waiting <= 2 * deps.prefetch)
          found.push({ process: name, step, isFirst: step === stepNames[0] })
      }
    }
    return found
  }

  /**
   * Whether more runs may be overdue. Becomes true when a poll publishes its maximum number of runs, and false when a
   * poll of all steps finds fewer.
   */
  let isMoreDue = false

  /**
   * Publishes overdue runs. Resolves with false if the next poll should follow soon: more runs are overdue than one
   * poll may publish, or no queue could be checked because no process runs now or the broker is unavailable.
   */
  async function poll(): Promise<boolean> {
    const steps = await shortQueues()
    if (steps.length === 0) return false
    let isCapped = true
    for (let batch = 0; batch < MAX_BATCHES && isCapped; batch += 1) {
      const runs = await source.due(steps, BATCH)
      await Promise.all(runs.map(republish))
      if (runs.length > 0) {
        log.info({ count: runs.length }, 'sweeper published the messages of overdue steps again')
        deps.onSweep(runs.length)
      }
      isCapped = runs.length === BATCH
    }
    await failRunsAtUnknownStep()
    const all = [...processes.values()].reduce((sum, { stepNames }) => sum + stepNames.length, 0)
    isMoreDue = isCapped || (isMoreDue && steps.length < all)
    return !isMoreDue
  }

  /** Marks overdue runs as failed if their step was removed from the process. */
  async function failRunsAtUnknownStep(): Promise<void> {
    const running = [...processes.values()].filter(({ name }) => worker.isConsuming(name))
    const consumed = new Map<string, boolean>()
    for (const run of await source.runsAtUnknownStep(running.map(outlineOf), BATCH)) {
      const { Process, StepName, Version } = run
      const where = `${Process}.${StepName}`
      if (!consumed.has(where)) consumed.set(where, await isConsumed(Process, StepName))
      if (consumed.get(where) === true) continue
      const error = `the process has no step ${StepName} any more; resume the run once it has it again`
      const failed = await source.failRun(run, Version, 'step_unknown', error)
      if (failed === null) continue
      log.warn(
        { process: Process, step: StepName },
        'run marked as failed: its process has no such step',
      )
      publisher.publishEvent(failed)
    }
  }

  /**
   * Whether any replica consumes the queue of this step. In a rolling deployment another replica may run a version of
   * the process that still has the step.
   */
  async function isConsumed(process: string, step: string): Promise<boolean> {
    const consumers = await queue.consumers(process, step)
    if (consumers !== null) return consumers > 0
    // `null` means either that the queue does not exist, so nothing can consume it, or that the broker is
    // unavailable. A query of a queue that must exist distinguishes the two cases. If the broker is
    // unavailable, the step counts as consumed.
    const first = processes.get(process)?.stepNames[0]
    return first === undefined || (await queue.waiting(process, first)) === null
  }

  async function republish(run: Run): Promise<void> {
    // Another program inserted this row with an invalid id. No step message may contain an invalid id, so no worker
    // could ever claim the run.
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

  return startPolling({
    task: 'sweeper',
    intervalMs: deps.intervalMs,
    log,
    random: deps.random,
    poll,
    wakeUp() {
      hint = new AbortController()
      return hint.signal
    },
  })
}
