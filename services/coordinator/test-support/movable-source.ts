import { createMemoryTransactionSource } from '../src/adapters/memory/transaction-source.ts'
import type { TransactionSource, WebhooksOf } from '../src/run/transaction-source.ts'

/** A transaction source whose clock a test moves, so that no test waits for a lease or a sweep to expire. */
export type MovableSource = TransactionSource & {
  /** Moves the clock of the source by `ms`: forward, or back if `ms` is negative. */
  readonly advance: (ms: number) => Promise<void>
}

/** The times that the tested source must use. They are so long that none of them passes while a test runs. */
export const contractTimes = { leaseMs: 30_000, sweepMs: 10_000 }

/**
 * How long before the end of a time limit a test checks that the limit still holds. It is longer than the statements of
 * a test need on a machine under load.
 */
export const MARGIN_MS = 5_000

/** Opens a memory source with `contractTimes` and a clock that the test moves. */
export async function openMovableMemorySource(
  dataDir: string,
  webhooksOf?: WebhooksOf,
): Promise<MovableSource> {
  let movedMs = 0
  const now = () => Date.now() + movedMs
  const source = await createMemoryTransactionSource(dataDir, { ...contractTimes, now, webhooksOf })
  return {
    ...source,
    async advance(ms) {
      movedMs += ms
    },
  }
}
