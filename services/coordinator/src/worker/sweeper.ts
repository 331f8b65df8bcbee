/**
 * The local pull: publishes the due runs again that no message was consumed for. It never runs a step: the
 * only way into a step is a delivery and its claim.
 *
 * It polls every 15 s, and at once when the source hints at inserted rows. Each run is published at growing
 * intervals, and only if the queue of its step is short: a long queue means slow workers, not lost messages,
 * and more messages would not help. A run at a step that its process no longer has is failed with the reason,
 * because no worker would ever claim it.
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
/** The most batches that one poll publishes; the rest follows when the queues are short again. */
const MAX_BATCHES = 10
/** The delay from a hint of the source to the poll: rows that are inserted meanwhile are found with it. */
const HINT_MS = 50

export function startSweeper(deps: SweeperDeps): AsyncDisposable {
  const { source, queue, publisher, worker, processes, log } = deps
  /** Ends the pause before the next poll. */
  let hint = new AbortController()
  let hinted: NodeJS.Timeout | null = null
  source.watch(() => {
    hinted ??= setTimeout(() => {
      hinted = null
      hint.abort()
    }, HINT_MS).unref()
  })

  /** The steps whose overdue runs are worth a message now. */
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

  /** Whether a previous poll left overdue runs behind that none has looked at since. */
  let isMoreDue = false

  /**
   * False if it should be repeated soon: there was more than one poll publishes, or it could look at nothing,
   * because no process runs now or the broker is unavailable.
   */
  async function poll(): Promise<boolean> {
    const steps = await shortQueues()
    if (steps.length === 0) return false
    let isCapped = true
    for (let batch = 0; batch < MAX_BATCHES && isCapped; batch += 1) {
      const runs = await source.due(steps, BATCH)
      await Promise.all(runs.map(republish))
      if (runs.length > 0) {
        log.info({ count: runs.length }, 'sweeper published steps again')
        deps.onSweep(runs.length)
      }
      isCapped = runs.length === BATCH
    }
    await failRunsAtUnknownStep()
    const all = [...processes.values()].reduce((sum, { stepNames }) => sum + stepNames.length, 0)
    isMoreDue = isCapped || (isMoreDue && steps.length < all)
    return !isMoreDue
  }

  /** Fails overdue runs at a step that was removed from their process. */
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
      log.warn({ process: Process, step: StepName }, 'failed a run at an unknown step')
      publisher.publishEvent(failed)
    }
  }

  /** Whether any replica consumes this step's queue, as in a rolling deployment of two versions of a process. */
  async function isConsumed(process: string, step: string): Promise<boolean> {
    const consumers = await queue.consumers(process, step)
    if (consumers !== null) return consumers > 0
    // Either there is no such queue, which nothing can consume; or the broker is unavailable, which proves nothing.
    const first = processes.get(process)?.stepNames[0]
    return first === undefined || (await queue.waiting(process, first)) === null
  }

  async function republish(run: Run): Promise<void> {
    // A row that another program inserted: no message could carry this id, so the run could never be claimed.
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
