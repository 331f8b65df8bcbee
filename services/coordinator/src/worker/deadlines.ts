import type { TransactionSource } from '../run/transaction-source.ts'
import type { ProcessDefinition } from '../step/definition.ts'
import { type Periodic, startPolling } from './polling.ts'
import type { TransitionPublisher } from './transition-publisher.ts'

export interface DeadlinesDeps extends Periodic {
  readonly source: Pick<TransactionSource, 'failPastDeadline'>
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly publisher: Pick<TransitionPublisher, 'publishStep'>
}

const BATCH = 500
/** The maximum number of batches of runs that one poll may fail. */
const MAX_BATCHES = 10

/**
 * Fails the runs whose deadline has passed, or begins their undo (`onFailure: 'undo'`). This includes runs of processes that are paused, wait for the internet, or
 * are not loaded here.
 */
export function startDeadlines(deps: DeadlinesDeps): AsyncDisposable {
  const { source, processes, publisher, log } = deps

  async function poll(): Promise<boolean> {
    const undone = [...processes.values()].filter(({ undoesFailure }) => undoesFailure)
    const names = undone.map(({ name }) => name)
    for (let batch = 0; batch < MAX_BATCHES; batch += 1) {
      const failed = await source.failPastDeadline(BATCH, names)
      for (const run of failed) {
        const { Process: process, TransactionID: transactionId, ReplayID: replayId } = run
        log.warn(
          { process, transactionId, replayId, step: run.StepName },
          'failed a run because its deadline has passed',
        )
        await publisher.publishStep(run)
      }
      if (failed.length < BATCH) return true
    }
    return false
  }

  return startPolling({ ...deps, task: 'deadlines', poll })
}
