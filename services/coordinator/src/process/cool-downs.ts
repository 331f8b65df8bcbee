/**
 * Credentials and targets whose calls must wait after a 429. Each worker keeps its cool-downs only in its own memory.
 *
 * For a credential, the gateway enforces the cool-down of the realm across all replicas: the first call of each replica
 * gets a 429 too, so each replica starts its own cool-down. For a target with limits, the cool-down is also stored, so
 * that it applies to all replicas.
 */
export interface CoolDowns {
  /**
   * Starts a cool-down; `retryAfterMs` is the Retry-After of the 429. The calls of waiting steps are `spacingMs` apart,
   * by default 100 ms. Returns the delay of the calling step, like `delayOf`.
   */
  start(credential: string, retryAfterMs: number | null, spacingMs?: number): number
  /**
   * Returns the milliseconds until the calling step may make its call: the remaining cool-down, plus the spacing for
   * each step that is already waiting. `null` if there is no cool-down.
   */
  delayOf(credential: string): number | null
  /** Whether a cool-down of the credential has not ended, or steps still wait for their time after it. */
  isHeld(credential: string): boolean
}

/**
 * The cool-down of a credential, and the steps that wait for their time. This entry is kept after the cool-down until
 * the last of these times has passed, so that a further cool-down does not give the same times to other steps.
 */
interface Line {
  /** The end of the cool-down, epoch ms. */
  until: number
  /**
   * The time at which the next waiting step may make its call, epoch ms. Each waiting step gets a different time, so
   * that the steps do not all call at once.
   */
  nextAt: number
  readonly spacingMs: number
  /**
   * How many displaced steps may call as soon as the cool-down ends, although other steps wait. A step is displaced if
   * its time passed during the cool-down. Without this rule, the target would get no call directly after each
   * cool-down.
   */
  displaced: number
}

/** @param now - returns epoch ms, which are used for durations only */
export function createCoolDowns(now: () => number): CoolDowns {
  const lines = new Map<string, Line>()
  function reserveDelay(line: Line): number {
    if (line.displaced > 0) {
      line.displaced -= 1
      return line.until - now()
    }
    const delayMs = line.nextAt - now()
    line.nextAt += line.spacingMs
    return delayMs
  }
  return {
    start(credential, retryAfterMs, spacingMs = SPACING_MS) {
      for (const [name, { until, nextAt }] of lines)
        if (Math.max(until, nextAt) <= now()) lines.delete(name)
      const known = lines.get(credential)
      const line = known ?? { until: 0, nextAt: 0, spacingMs, displaced: 0 }
      if (known !== undefined && known.until <= now()) line.displaced = MAX_DISPLACED
      line.until = Math.max(line.until, now() + coolDownMs(retryAfterMs))
      line.nextAt = Math.max(line.until, line.nextAt)
      lines.set(credential, line)
      return reserveDelay(line)
    },
    delayOf(credential) {
      const line = lines.get(credential)
      return line === undefined || line.until <= now() ? null : reserveDelay(line)
    },
    isHeld(credential) {
      const line = lines.get(credential)
      return line !== undefined && Math.max(line.until, line.nextAt) > now()
    },
  }
}

/** Returns the length of a cool-down in milliseconds; `null` stands for a 429 without Retry-After. */
export const coolDownMs = (retryAfterMs: number | null): number =>
  Math.min(Math.max(retryAfterMs ?? DEFAULT_MS, MIN_MS), MAX_MS)

// The length of a cool-down after a 429 without Retry-After. The gateway has the same default.
const DEFAULT_MS = 60_000
// The minimum length of a cool-down, even after `Retry-After: 0`. It prevents a step from repeating its call without
// delay and without end, because an attempt that ends in a cool-down does not count against the maximum number of
// attempts.
const MIN_MS = 1_000
// The maximum length of a cool-down. A longer Retry-After counts as a mistake of the target, as in retry-policy.ts.
const MAX_MS = 86_400_000
// The time between the calls of two waiting steps, because the gateway admits ten calls per second for a realm.
const SPACING_MS = 100
/** The number of calls per second that the gateway admits for a realm. */
const MAX_DISPLACED = 10
