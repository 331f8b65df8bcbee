import type { Act } from '../transaction/action.ts'
import type { ErasurePosition, Erasures, ErasureScope } from '../transaction/erasure.ts'
import type { RunKey } from '../transaction/run.ts'

/** What an erasure has done, and what it has left. */
export interface ErasureResult {
  /** Runs whose data was blanked. */
  readonly erased: number
  readonly files: number
  /** Whether ended runs are left because the time of the request was over. */
  readonly more: boolean
  /** Runs that have not ended, and therefore keep their data. */
  readonly notEnded: number
  /** Ids of the request that have no run. */
  readonly unknown: number
}

export interface ErasureDeps {
  readonly source: Erasures
  /** Removes the files that the steps of a run have written; returns their number. */
  readonly removeFiles: (run: RunKey) => Promise<number>
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
export function createErasure({ source, removeFiles, now }: ErasureDeps): Erase {
  return async (scope, act) => {
    const startedAt = now()
    let [erased, files] = [0, 0]
    let after: ErasurePosition | null = null
    do {
      const batch = await source.erase(scope, { after, limit: BATCH }, act)
      for (const { isNew, ...run } of batch.runs) {
        if (isNew) erased += 1
        files += await removeFiles(run)
      }
      after = batch.next
    } while (after !== null && now() - startedAt < MAX_MS)
    const { active, unknown } = await source.unerasable(scope)
    return { erased, files, more: after !== null, notEnded: active, unknown }
  }
}
