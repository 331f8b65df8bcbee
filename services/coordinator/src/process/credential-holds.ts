/**
 * Credentials whose calls rest, because a 429 said so. One worker's memory is enough: the gateway holds the realm
 * for all of them, so each replica learns of a hold with its first call.
 */
export interface CredentialHolds {
  /** Holds the credential; `retryAfterMs` is what the 429 named. Returns as `delayOf` does. */
  hold(credential: string, retryAfterMs: number | null): number
  /**
   * Milliseconds until the step that asks may call: the end of the hold, and its place behind those that asked
   * before it. Null when nothing is held.
   */
  delayOf(credential: string): number | null
}

interface Hold {
  /** Epoch ms. */
  until: number
  /** The place of the next one that asks: what waited together does not come back together. */
  nextAt: number
}

/** @param now Epoch ms; for distances only. */
export function createCredentialHolds(now: () => number): CredentialHolds {
  const holds = new Map<string, Hold>()
  function takePlace(hold: Hold): number {
    const delayMs = hold.nextAt - now()
    hold.nextAt += SPACING_MS
    return delayMs
  }
  return {
    hold(credential, retryAfterMs) {
      for (const [name, { until }] of holds) if (until <= now()) holds.delete(name)
      const restMs = Math.min(Math.max(retryAfterMs ?? DEFAULT_HOLD_MS, MIN_HOLD_MS), MAX_HOLD_MS)
      const { until = 0, nextAt = 0 } = holds.get(credential) ?? {}
      const held = { until: Math.max(until, now() + restMs), nextAt }
      held.nextAt = Math.max(held.until, held.nextAt)
      holds.set(credential, held)
      return takePlace(held)
    },
    delayOf(credential) {
      const held = holds.get(credential)
      return held === undefined || held.until <= now() ? null : takePlace(held)
    },
  }
}

// The gateway's own default, for a 429 that names no time.
const DEFAULT_HOLD_MS = 60_000
// No attempt is charged for a hold, so nothing else slows down a target that says 0.
const MIN_HOLD_MS = 1_000
// As with any Retry-After: a date far away is a mistake.
const MAX_HOLD_MS = 86_400_000
// The gateway lets ten calls of a realm through in a second.
const SPACING_MS = 100
