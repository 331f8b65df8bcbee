/**
 * Credentials and targets whose calls must wait after a 429. Each worker keeps its cool-downs only in its own memory.
 *
 * For a credential, the gateway enforces the cool-down of the realm across all replicas: the first call of each replica
 * gets a 429 too, so each replica starts its own cool-down. For a target with limits, the cool-down is also stored, so
 * that it applies to all replicas.
 */
export interface CoolDowns {
  /**
   * Starts a cool-down; `retryAfterMs` is the Retry-After of the 429. Returns the delay of the calling step, like
   * `delayOf`.
   */
  start(key: string, retryAfterMs: number | null): number
  /**
   * Returns the milliseconds until the calling step may make its call. `null` means now: the call is then counted
   * against the pace of the line.
   */
  delayOf(key: string): number | null
  /** Whether a cool-down has begun and has not ended. `delayOf` then returns a delay. */
  isCoolingDown(key: string): boolean
  /** Whether a cool-down has not ended, or steps still wait for their time after it. */
  isHeld(key: string): boolean
  /** Must be called after each response that starts no cool-down. The pace of the line follows from these responses. */
  accepted(key: string): void
}

/**
 * The cool-down of a credential or target, and the steps that wait for their time. Each waiting step gets a different
 * time, so that the steps do not all call at once. The line is kept after the cool-down until the last of these times
 * has passed.
 *
 * The calls of a line are made at a pace, because each further 429 would stop them all. The pace is that of the calls
 * which were accepted between the two latest cool-downs, and increases slowly with each accepted call. The waiting steps
 * are a little closer together than the pace, because a time that has passed without a call is lost. A step whose time
 * comes too early gets another one at the end of the line.
 */
interface Line {
  /** The end of the cool-down, epoch ms. */
  until: number
  /** The time of the next step that joins the line, epoch ms. */
  nextAt: number
  /** The milliseconds between two calls at the current pace. */
  intervalMs: number
  /**
   * The time before which a call would exceed the pace, epoch ms (the theoretical arrival time of the generic cell rate
   * algorithm, ITU-T I.371).
   */
  nextCallAt: number
  /** The number of accepted calls since the latest cool-down. */
  accepted: number
}

/** @param now - returns epoch ms, which are used for durations only */
export function createCoolDowns(now: () => number): CoolDowns {
  const lines = new Map<string, Line>()
  /** The accepted calls of each key without a line since a time that is at most a second before the latest of them. */
  const recent = new Map<string, { readonly since: number; count: number }>()
  const endOf = ({ until, nextAt }: Line): number => Math.max(until, nextAt)
  /** Returns the line of the key; `undefined` if no step waits any more. */
  function lineOf(key: string): Line | undefined {
    const line = lines.get(key)
    return line === undefined || endOf(line) <= now() ? undefined : line
  }
  function joined(line: Line): number {
    const at = Math.max(line.nextAt, line.until, line.nextCallAt)
    line.nextAt = at + Math.max(MIN_INTERVAL_MS, line.intervalMs * SPACING)
    return at - now()
  }
  function begin(key: string): Line {
    for (const [other, line] of lines) if (endOf(line) <= now()) lines.delete(other)
    const { since = 0, count = 0 } = recent.get(key) ?? {}
    const isKnown = count >= MIN_MEASURED_CALLS && now() - since <= 2 * MIN_MEASURED_MS
    const intervalMs = isKnown
      ? Math.max(MIN_INTERVAL_MS, MIN_MEASURED_MS / count)
      : MIN_INTERVAL_MS
    const line = { until: 0, nextAt: 0, intervalMs, nextCallAt: 0, accepted: 0 }
    lines.set(key, line)
    return line
  }
  function countAccepted(key: string): void {
    const known = recent.get(key)
    if (known !== undefined && now() - known.since < MIN_MEASURED_MS) known.count += 1
    else {
      if (recent.size >= MAX_RECENT) recent.clear()
      recent.set(key, { since: now(), count: 1 })
    }
  }
  return {
    start(key, retryAfterMs) {
      const line = lineOf(key) ?? begin(key)
      if (line.until > 0 && line.until <= now()) {
        const measuredMs = Math.max(MIN_MEASURED_MS, now() - line.until)
        const interval =
          line.accepted > 0
            ? measuredMs / line.accepted
            : Math.min(2 * line.intervalMs, MAX_INTERVAL_MS)
        line.intervalMs = Math.max(MIN_INTERVAL_MS, interval * SLOWER)
        line.accepted = 0
      }
      line.until = Math.max(line.until, now() + coolDownMs(retryAfterMs))
      line.nextCallAt = Math.max(line.nextCallAt, line.until)
      return joined(line)
    },
    delayOf(key) {
      const line = lineOf(key)
      if (line === undefined) return null
      if (line.nextCallAt > now()) return joined(line)
      line.nextCallAt = Math.max(line.nextCallAt, now() - BURST_MS) + line.intervalMs
      return null
    },
    isCoolingDown: (key) => (lines.get(key)?.until ?? 0) > now(),
    isHeld: (key) => lineOf(key) !== undefined,
    accepted(key) {
      const line = lineOf(key)
      if (line === undefined) return countAccepted(key)
      line.accepted += 1
      line.intervalMs = Math.max(MIN_INTERVAL_MS, line.intervalMs * FASTER)
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
// The fastest pace is ten calls per second, which is what the gateway admits for a realm. A line begins with it, or with
// the pace of the second before its first 429, if enough calls were accepted in that second.
const MIN_INTERVAL_MS = 100
const MAX_INTERVAL_MS = 60_000
// A target may accept the calls of a second at once and reject further ones, so a shorter time shows no pace.
const MIN_MEASURED_MS = 1_000
const MIN_MEASURED_CALLS = 3
/** The maximum number of keys whose accepted calls are counted. */
const MAX_RECENT = 10_000
/** Calls that were not made in this time may be made up for. */
const BURST_MS = 1_000
// The following factors were chosen with the simulation in the test: a pace of 8 to 9 tenths of the permitted one, with a
// 429 for one in 50 calls, and 2.4 claims of a run.
const SLOWER = 1.05
const FASTER = 0.998
const SPACING = 0.9
