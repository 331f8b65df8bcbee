import type { ProcessDefinition } from '../process/definition.ts'
import type { ProcessSettings } from '../process/step.ts'
import type { RunKey } from '../transaction/run.ts'

/** Removes the files that the steps of runs have written, durably; resolves with the number of files. */
export type RemoveFilesOfRuns = (runs: readonly RunKey[]) => Promise<number>

/** `remove` ignores files that do not exist. A process that is not loaded names no files. */
export const createRemoveFilesOfRuns =
  (
    processes: ReadonlyMap<string, ProcessDefinition>,
    settings: ProcessSettings,
    remove: (paths: readonly string[]) => Promise<number>,
  ): RemoveFilesOfRuns =>
  (runs) =>
    remove(
      runs.flatMap(
        ({ Process, TransactionID: transactionId, ReplayID: replayId }) =>
          processes.get(Process)?.files({ transactionId, replayId, settings }) ?? [],
      ),
    )
