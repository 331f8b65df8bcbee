/**
 * How fast old runs are purged. The size of a batch follows the time of the previous one, so that its row locks last
 * tens of milliseconds. The pause after it grows with the square of the slowdown: beside other work a statement takes
 * longer, and the purge leaves that work the machine.
 */
export interface PurgePace {
  /** The number of runs of the next batch. */
  readonly size: number
  /** The lowest time per run so far, which rises slowly, so that one lucky batch does not count for ever. */
  readonly bestMs: number
  readonly pauseMs: number
}

/** In a smaller batch the commit would cost more than the purge, and look like load. */
const MIN_SIZE = 100
export const MAX_SIZE = 1_000
const TARGET_MS = 40
/** The pause at full speed, as a share of the time of the batch. */
const PAUSE = 0.25
/** However slow the machine is, the purge works a fifth of the time. */
const MAX_SLOWDOWN = 4
const BEST_DRIFT = 1.0002

export const firstPace: PurgePace = { size: 100, bestMs: Infinity, pauseMs: 0 }

/** Returns the pace after a batch of `count` runs that took `ms`. */
export function nextPace({ size, bestMs }: PurgePace, count: number, ms: number): PurgePace {
  const perRun = Math.max(ms, 0.1) / Math.max(count, 1)
  // A small batch takes longer for each run, so it says nothing about the load.
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
