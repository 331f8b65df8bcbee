/**
 * Records the recent activity of each company in memory, for operators: cool-downs, waiting calls, the rate of calls,
 * and the last failed calls. Only the calls of this process are recorded.
 */
import { type GatewayLimits, watchLimits } from './throttle.ts'

const MAX_FAILED = 20
/**
 * The maximum number of recorded companies. When a new company is added beyond this number, the company that was
 * recorded first is dropped.
 */
const MAX_REALMS = 10_000
const SECONDS = 60

export interface FailedCallRecord {
  /** The end of the call in epoch ms. */
  readonly at: number
  readonly method: string
  /** The path without the query, because a query may contain business data. */
  readonly path: string
  readonly status: number
  readonly code: string | null
  /** The provider's code and message in the response, a text from outside; `null` if there are none. */
  readonly providerError: string | null
  readonly durationMs: number
  readonly waitedMs: number
  readonly attempts: number
  readonly traceId: string | null
  readonly requestId: string
}

export interface RealmState {
  readonly realm: string
  /** The end of the cool-down in epoch ms; `null` if this process knows of no cool-down. */
  readonly heldUntil: number | null
  readonly waiting: number
  readonly lastSecond: number
  readonly lastMinute: number
  /** The last failed calls, newest first. */
  readonly failed: readonly FailedCallRecord[]
}

export interface RealmActivityLog {
  /** Returns limits that behave like `limits`, and also record waiting calls and cool-downs. */
  observed(limits: GatewayLimits): GatewayLimits
  /** Records the end of a call. `failed` is `null` for a call with a status below 400. */
  callEnded(realm: string, failed: FailedCallRecord | null): void
  find(realm: string): RealmState
  /**
   * Returns companies in a cool-down first, then companies with waiting calls, then the companies with the most calls.
   */
  list(): readonly RealmState[]
}

interface Entry {
  heldUntil: number
  waiting: number
  /** The number of calls in each second of the last minute. The index is the second modulo 60. */
  readonly seconds: Uint32Array
  /** The time of the newest call in epoch seconds. */
  lastSecond: number
  failed: FailedCallRecord[]
}

/** @param now returns epoch milliseconds */
export function createRealmActivityLog(now: () => number): RealmActivityLog {
  const entries = new Map<string, Entry>()

  function entryOf(realm: string): Entry {
    const known = entries.get(realm)
    if (known !== undefined) return known
    const entry: Entry = {
      heldUntil: 0,
      waiting: 0,
      seconds: new Uint32Array(SECONDS),
      lastSecond: 0,
      failed: [],
    }
    entries.set(realm, entry)
    if (entries.size > MAX_REALMS) forgetOldest()
    return entry
  }

  function forgetOldest(): void {
    for (const [realm, { waiting }] of entries) {
      if (waiting > 0) continue
      entries.delete(realm)
      return
    }
  }

  /** Sets the counts of the seconds between the newest call and `second` to zero. */
  function moveTo(entry: Entry, second: number): void {
    if (second - entry.lastSecond >= SECONDS) entry.seconds.fill(0)
    else
      for (let passed = entry.lastSecond + 1; passed <= second; passed += 1)
        entry.seconds[passed % SECONDS] = 0
    entry.lastSecond = Math.max(entry.lastSecond, second)
  }

  const secondOf = (ms: number): number => Math.floor(ms / 1_000)

  function stateOf(realm: string, entry: Entry): RealmState {
    const at = now()
    const second = secondOf(at)
    moveTo(entry, second)
    return {
      realm,
      heldUntil: entry.heldUntil > at ? entry.heldUntil : null,
      waiting: entry.waiting,
      // The current second may have just begun, so the previous second is considered as well.
      lastSecond: Math.max(
        entry.seconds[second % SECONDS] ?? 0,
        entry.seconds[(second + SECONDS - 1) % SECONDS] ?? 0,
      ),
      lastMinute: entry.seconds.reduce((sum, calls) => sum + calls, 0),
      failed: entry.failed,
    }
  }

  return {
    observed: (limits) =>
      watchLimits(limits, {
        onWait(realm, permit) {
          const entry = entryOf(realm)
          entry.waiting += 1
          const end = (): void => void (entry.waiting -= 1)
          permit.then(end, end)
        },
        onCoolDown(realm, ms) {
          const entry = entryOf(realm)
          entry.heldUntil = Math.max(entry.heldUntil, now() + ms)
        },
      }),
    callEnded(realm, failed) {
      const entry = entryOf(realm)
      const second = secondOf(now())
      moveTo(entry, second)
      const index = second % SECONDS
      entry.seconds[index] = (entry.seconds[index] ?? 0) + 1
      if (failed !== null) entry.failed = [failed, ...entry.failed.slice(0, MAX_FAILED - 1)]
    },
    find(realm) {
      const entry = entries.get(realm)
      return entry === undefined
        ? { realm, heldUntil: null, waiting: 0, lastSecond: 0, lastMinute: 0, failed: [] }
        : stateOf(realm, entry)
    },
    list: () =>
      [...entries]
        .map(([realm, entry]) => stateOf(realm, entry))
        .toSorted(
          (one, other) =>
            Number(other.heldUntil !== null) - Number(one.heldUntil !== null) ||
            other.waiting - one.waiting ||
            other.lastMinute - one.lastMinute,
        ),
  }
}
