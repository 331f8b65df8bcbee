/**
 * The speed at which old runs are purged. The size of a batch depends on the duration of the previous batch, so that
 * row locks last only tens of milliseconds. The pause after a batch grows with the square of the slowdown, because a
 * statement that takes longer than usual shows that the database has other work.
 */
export interface PurgePace {
  /** The number of runs of the next batch. */
  readonly size: number
  /**
   * The lowest time per run so far, in milliseconds. The value rises by 0.2 % per batch. So a permanent slowdown, for
   * example when a table no longer fits into memory, counts as normal after some minutes.
   */
  readonly bestMs: number
  readonly pauseMs: number
}

/**
 * The minimum number of runs in a batch. In a smaller batch, the commit would take longer than the purge itself, which
 * would look like load.
 */
const MIN_SIZE = 100
export const MAX_SIZE = 1_000
const TARGET_MS = 40
/** The length of the pause after a batch without a slowdown, as a fraction of the duration of the batch. */
const PAUSE = 0.25
/**
 * The maximum slowdown. It limits the pause to four times the duration of the batch, so that the purge works at least a
 * fifth of the time.
 */
const MAX_SLOWDOWN = 4
const BEST_DRIFT = 1.002

export const firstPace: PurgePace = { size: 100, bestMs: Infinity, pauseMs: 0 }

/** Returns the pace after a batch of `count` runs that took `ms`. */
export function nextPace({ size, bestMs }: PurgePace, count: number, ms: number): PurgePace {
  const perRun = Math.max(ms, 0.1) / Math.max(count, 1)
  // The duration of a small batch is ignored, because a small batch takes longer per run even without load.
  const isSmall = count < size / 2
  const best = isSmall ? bestMs : Math.min(perRun, bestMs * BEST_DRIFT)
  const slowdown = isSmall ? 1 : Math.min(MAX_SLOWDOWN, perRun / best)
  const wanted = Math.min(TARGET_MS / perRun, size * 2)
  return {
    size: isSmall ? size : Math.round(Math.min(MAX_SIZE, Math.max(MIN_SIZE, wanted))),
    bestMs: best,
    pauseMs: ms * PAUSE * slowdown ** 2,
  }
}
