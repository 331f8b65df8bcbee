import type { Logger } from '@integration-host/shared/observability/logger'
import type { Act } from '../transaction/action.ts'
import type { ErasurePosition, Erasures, ErasureScope } from '../transaction/erasure.ts'
import { type RunKey, runKey } from '../transaction/run.ts'
import type { RemoveFilesOfRuns } from './run-files.ts'

/** What an erasure has done, and what it has left. */
export interface ErasureResult {
  /** Runs whose data was blanked. */
  readonly erased: number
  readonly files: number
  /** Runs of which a file could not be removed. */
  readonly filesLeft: number
  /** Whether ended runs are left because the time of the request was over. */
  readonly more: boolean
  /** Runs that have not ended, and therefore keep their data. */
  readonly notEnded: number
  /** Ids of the request that have no run. */
  readonly unknown: number
}

export interface ErasureDeps {
  readonly source: Erasures
  readonly removeFiles: RemoveFilesOfRuns
  readonly log: Logger
  /** Returns milliseconds. */
  readonly now: () => number
}

export type Erase = (scope: ErasureScope, act: Pick<Act, 'by' | 'reason'>) => Promise<ErasureResult>

const BATCH = 200
/** An erasure returns after this time at the latest, although runs are left, so that a client need not wait longer. */
const MAX_MS = 20_000

/**
 * Returns a function that erases runs batch by batch. The files of a batch are removed after its runs are blanked,
 * because a run that is erased cannot be resumed and write them again. If the service is killed in between, the next
 * erasure of the same scope removes them.
 */
export function createErasure({ source, removeFiles, log, now }: ErasureDeps): Erase {
  /** Removes the files of each run, even if those of another one cannot be removed. */
  async function removeFilesOf(runs: readonly RunKey[]) {
    const counts = { files: 0, filesLeft: 0 }
    await Promise.all(
      runs.map(async (run) => {
        try {
          counts.files += await removeFiles([run])
        } catch (error) {
          counts.filesLeft += 1
          log.error({ err: error, ...runKey(run) }, 'files of an erased run could not be removed')
        }
      }),
    )
    return counts
  }

  return async (scope, act) => {
    const startedAt = now()
    let [erased, files, filesLeft] = [0, 0, 0]
    let after: ErasurePosition | null = null
    do {
      const batch = await source.erase(scope, { after, limit: BATCH }, act)
      erased += batch.runs.filter(({ isNew }) => isNew).length
      const removed = await removeFilesOf(batch.runs)
      files += removed.files
      filesLeft += removed.filesLeft
      after = batch.next
    } while (after !== null && now() - startedAt < MAX_MS)
    const { active, unknown } = await source.unerasable(scope)
    return { erased, files, filesLeft, more: after !== null, notEnded: active, unknown }
  }
}
