import type { ProcessDefinition } from '../step/definition.ts'
import type { ProcessSettings } from '../step/step.ts'
import type { RunKey } from '../run/run.ts'

export interface RemovedFiles<Run> {
  /** The number of files that existed and were removed. */
  readonly count: number
  /** The runs with files that could not be removed, with one error per run. */
  readonly failures: readonly { readonly run: Run; readonly error: unknown }[]
}

/** Durably removes the files that the steps of runs have written. A failure does not affect other runs. */
export type RemoveFilesOfRuns = <Run extends RunKey>(
  runs: readonly Run[],
) => Promise<RemovedFiles<Run>>

/**
 * Returns a function that removes the files of runs. The files of a process that is not loaded are unknown, so they are
 * not removed.
 *
 * @param remove removes files. The results have the order of the paths; `false` means that a file did not exist.
 */
export function createRemoveFilesOfRuns(
  processes: ReadonlyMap<string, ProcessDefinition>,
  settings: ProcessSettings,
  remove: (paths: readonly string[]) => Promise<readonly PromiseSettledResult<boolean>[]>,
): RemoveFilesOfRuns {
  const pathsOf = ({ Process, TransactionID: transactionId, ReplayID: replayId }: RunKey) =>
    processes.get(Process)?.files({ transactionId, replayId, settings }) ?? []

  return async <Run extends RunKey>(runs: readonly Run[]) => {
    const errors = new Map<Run, unknown>()
    const files = runs.flatMap((run) => {
      try {
        return pathsOf(run).map((path) => ({ run, path }))
      } catch (error) {
        errors.set(run, error)
        return []
      }
    })
    const results = await remove(files.map(({ path }) => path))
    let count = 0
    for (const [index, { run }] of files.entries()) {
      const result = results[index]
      if (result?.status === 'rejected') errors.set(run, result.reason)
      else if (result?.value === true) count += 1
    }
    return { count, failures: [...errors].map(([run, error]) => ({ run, error })) }
  }
}
