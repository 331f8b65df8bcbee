import type { Logger } from '@integration-host/shared/observability/logger'
import type { Act } from '../transaction/action.ts'
import type {
  ErasableRun,
  ErasurePosition,
  Erasures,
  ErasureScope,
} from '../transaction/erasure.ts'
import { runKey } from '../transaction/run.ts'
import type { RemoveFilesOfRuns } from './run-files.ts'

/** What an erasure has done, and what it has left. */
export interface ErasureResult {
  /** Runs whose data was blanked. */
  readonly erased: number
  readonly files: number
  /** Runs that keep their data, because one of their files could not be removed. */
  readonly filesLeft: number
  /** Whether ended runs may be left because the erasure was interrupted. */
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
}

/** The erasure returns soon after `signal` is aborted, although runs are left. */
export type Erase = (
  scope: ErasureScope,
  act: Pick<Act, 'by' | 'reason'>,
  signal: AbortSignal,
) => Promise<ErasureResult>

const PAGE = 200
/** Bounds the work for a scope in which runs end all the time. */
const MAX_PASSES = 10

/**
 * Returns a function that erases runs page by page. Because runs can end, or be replayed, behind the position of a
 * pass, passes are repeated until one finds nothing to erase; its counts are the result.
 */
export function createErasure({ source, removeFiles, log }: ErasureDeps): Erase {
  /** Removes the files of each run, even if those of another one cannot be removed. */
  async function removeFilesOf(runs: readonly ErasableRun[]) {
    let files = 0
    const cleared: ErasableRun[] = []
    await Promise.all(
      runs.map(async (run) => {
        try {
          const removed = await removeFiles([run])
          files += removed
          cleared.push(run)
        } catch (error) {
          log.error(
            { err: error, ...runKey(run) },
            'a run is not erased, because a file of it could not be removed',
          )
        }
      }),
    )
    return { files, cleared }
  }

  async function pass(...[scope, act, signal]: Parameters<Erase>) {
    const counts = { cleared: 0, erased: 0, files: 0, filesLeft: 0, notEnded: 0 }
    let after: ErasurePosition | null = null
    do {
      const page = await source.erasable(scope, { after, limit: PAGE })
      const { files, cleared } = await removeFilesOf(page.runs)
      counts.erased += await source.erase(cleared, act)
      counts.cleared += cleared.length
      counts.files += files
      counts.filesLeft += page.runs.length - cleared.length
      counts.notEnded += page.notEnded
      after = page.next
    } while (after !== null && !signal.aborted)
    return { ...counts, foundNothing: after === null && counts.cleared === 0 }
  }

  return async (scope, act, signal) => {
    let [erased, files, passes] = [0, 0, 0]
    let last
    do {
      last = await pass(scope, act, signal)
      erased += last.erased
      files += last.files
      passes += 1
    } while (!last.foundNothing && passes < MAX_PASSES && !signal.aborted)
    await source.endErasure()
    const { unknown } =
      'Ids' in scope ? await source.realmsOf(scope.Process, scope.Ids) : { unknown: 0 }
    const { filesLeft, notEnded, foundNothing } = last
    return { erased, files, filesLeft, more: !foundNothing, notEnded, unknown }
  }
}
