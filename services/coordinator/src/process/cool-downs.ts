/**
 * Credentials whose calls must wait, because a call with them was answered 429. The memory of one worker is
 * enough: the gateway enforces the cool-down of the realm for all replicas, so each learns of it with its
 * first call.
 */
export interface CoolDowns {
  /** Starts a cool-down; `retryAfterMs` is what the 429 named. Returns the same as `delayOf`. */
  start(credential: string, retryAfterMs: number | null): number
  /**
   * Milliseconds until the calling step may make its call: the rest of the cool-down, plus its place behind the
   * steps that asked before it. `null` if there is no cool-down.
   */
  delayOf(credential: string): number | null
}

interface CoolDown {
  /** Epoch ms. */
  until: number
  /** When the next step that asks may call: steps that waited together do not all call in one moment. */
  nextAt: number
}

/** @param now Epoch ms; used for durations only. */
export function createCoolDowns(now: () => number): CoolDowns {
  const coolDowns = new Map<string, CoolDown>()
  function takePlace(coolDown: CoolDown): number {
    const delayMs = coolDown.nextAt - now()
    coolDown.nextAt += SPACING_MS
    return delayMs
  }
  return {
    start(credential, retryAfterMs) {
      for (const [name, { until }] of coolDowns) if (until <= now()) coolDowns.delete(name)
      const ms = Math.min(Math.max(retryAfterMs ?? DEFAULT_MS, MIN_MS), MAX_MS)
      const { until = 0, nextAt = 0 } = coolDowns.get(credential) ?? {}
      const coolDown = { until: Math.max(until, now() + ms), nextAt }
      coolDown.nextAt = Math.max(coolDown.until, coolDown.nextAt)
      coolDowns.set(credential, coolDown)
      return takePlace(coolDown)
    },
    delayOf(credential) {
      const coolDown = coolDowns.get(credential)
      return coolDown === undefined || coolDown.until <= now() ? null : takePlace(coolDown)
    },
  }
}

// The gateway's own default for a 429 without Retry-After.
const DEFAULT_MS = 60_000
// A cool-down charges no attempt, so nothing else would slow the calls to a target that sends Retry-After: 0.
const MIN_MS = 1_000
// As for any Retry-After: a date further away is a mistake of the target.
const MAX_MS = 86_400_000
// The gateway admits ten calls per second for a realm.
const SPACING_MS = 100
