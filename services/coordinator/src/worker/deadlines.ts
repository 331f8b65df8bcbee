import type { TransactionSource } from '../run/transaction-source.ts'
import type { ProcessDefinition } from '../step/definition.ts'
import { inBatches, type Periodic, startPolling } from './polling.ts'
import type { TransitionPublisher } from './transition-publisher.ts'

export interface DeadlinesDeps extends Periodic {
  readonly source: Pick<TransactionSource, 'failPastDeadline'>
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly publisher: Pick<TransitionPublisher, 'publishStep'>
}

/**
 * Fails the runs whose deadline has passed, or begins their undo (`onFailure: 'undo'`). This includes runs of processes that are paused, wait for the internet, or
 * are not loaded here.
 */
export function startDeadlines(deps: DeadlinesDeps): AsyncDisposable {
  const { source, processes, publisher, log } = deps

  function poll(): Promise<boolean> {
    const undone = [...processes.values()].filter(({ undoesFailure }) => undoesFailure)
    const names = undone.map(({ name }) => name)
    return inBatches(async (size) => {
      const failed = await source.failPastDeadline(size, names)
      for (const run of failed) {
        const { Process: process, TransactionID: transactionId, ReplayID: replayId } = run
        log.warn(
          { process, transactionId, replayId, step: run.StepName },
          'failed a run because its deadline has passed',
        )
        await publisher.publishStep(run)
      }
      return failed.length
    })
  }

  return startPolling({ ...deps, task: 'deadlines', poll })
}
