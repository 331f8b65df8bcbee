/**
 * The cool-down of a credential or target, and the queue of the steps that wait for it. Each waiting step gets a
 * different start time, so that the steps do not all call at once. The queue is kept until the last start time has
 * passed, even if the cool-down ends earlier.
 *
 * The calls of a queue are limited to a call rate, because each further 429 would stop all of them. The call rate
 * equals the rate of the calls that were accepted between the two latest cool-downs, and rises slightly with each
 * accepted call. The start times are a little closer together than the rate permits, because some steps make no call at
 * their start time, and other steps cannot use that start time. A step that comes too early for the rate gets a new
 * start time at the end of the queue.
 */
interface Queue {
  /** The end of the cool-down, epoch ms. */
  until: number
  /** The start time of the next step that joins the queue, epoch ms. */
  nextAt: number
  /** The milliseconds between two calls at the current call rate. */
  intervalMs: number
  /**
   * A call before this time would exceed the call rate; epoch ms (the theoretical arrival time of the generic cell rate
   * algorithm, ITU-T I.371).
   */
  nextCallAt: number
  /** The number of accepted calls since the latest cool-down. */
  accepted: number
}

/**
 * Credentials and targets whose calls must wait after a 429. Each worker keeps its cool-downs only in its own memory.
 *
 * For a credential, the gateway enforces the cool-down of the realm across all replicas: the first call of each replica
 * gets a 429 too, so each replica starts its own cool-down. For a target with limits, the cool-down is also stored, so
 * that it applies to all replicas.
 */
export type CoolDowns = ReturnType<typeof createCoolDowns>

/** @param now - returns epoch ms, which are used for durations only */
export function createCoolDowns(now: () => number) {
  const queues = new Map<string, Queue>()
  /**
   * For each key without a queue: the number of accepted calls, and the time at which the count began. The count
   * restarts after a second.
   */
  const recent = new Map<string, { readonly since: number; count: number }>()
  const endOf = ({ until, nextAt }: Queue): number => Math.max(until, nextAt)
  /** Returns the queue of the key; `undefined` if there is neither a cool-down nor a waiting step. */
  function queueOf(key: string): Queue | undefined {
    const queue = queues.get(key)
    return queue === undefined || endOf(queue) <= now() ? undefined : queue
  }
  function joined(queue: Queue): number {
    const at = Math.max(queue.nextAt, queue.until, queue.nextCallAt)
    queue.nextAt = at + Math.max(MIN_INTERVAL_MS, queue.intervalMs * SPACING)
    return at - now()
  }
  function begin(key: string): Queue {
    for (const [other, queue] of queues) if (endOf(queue) <= now()) queues.delete(other)
    const { since = 0, count = 0 } = recent.get(key) ?? {}
    const isKnown = count >= MIN_MEASURED_CALLS && now() - since <= 2 * MIN_MEASURED_MS
    const intervalMs = isKnown
      ? Math.max(MIN_INTERVAL_MS, MIN_MEASURED_MS / count)
      : MIN_INTERVAL_MS
    const queue = { until: 0, nextAt: 0, intervalMs, nextCallAt: 0, accepted: 0 }
    queues.set(key, queue)
    return queue
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
    /**
     * Starts a cool-down; `retryAfterMs` is the Retry-After of the 429. Returns the delay of the calling step, like
     * `delayOf`.
     */
    start(key: string, retryAfterMs: number | null): number {
      const queue = queueOf(key) ?? begin(key)
      if (queue.until > 0 && queue.until <= now()) {
        const measuredMs = Math.max(MIN_MEASURED_MS, now() - queue.until)
        const interval =
          queue.accepted > 0
            ? measuredMs / queue.accepted
            : Math.min(2 * queue.intervalMs, MAX_INTERVAL_MS)
        queue.intervalMs = Math.max(MIN_INTERVAL_MS, interval * SLOWER)
        queue.accepted = 0
      }
      queue.until = Math.max(queue.until, now() + coolDownMs(retryAfterMs))
      queue.nextCallAt = Math.max(queue.nextCallAt, queue.until)
      return joined(queue)
    },
    /**
     * Returns the milliseconds until the calling step may make its call. `null` means that the step may call now; the
     * call then counts against the call rate of the key.
     */
    delayOf(key: string): number | null {
      const queue = queueOf(key)
      if (queue === undefined) return null
      if (queue.nextCallAt > now()) return joined(queue)
      queue.nextCallAt = Math.max(queue.nextCallAt, now() - BURST_MS) + queue.intervalMs
      return null
    },
    /** Whether a cool-down has begun and has not ended. `delayOf` then returns a delay. */
    isCoolingDown: (key: string): boolean => (queues.get(key)?.until ?? 0) > now(),
    /**
     * Whether the key has a cool-down that has not ended, or steps that still wait for their start time after a
     * cool-down.
     */
    isHeld: (key: string): boolean => queueOf(key) !== undefined,
    /**
     * Must be called after each response that starts no cool-down. The call rate of the key is computed from these
     * responses.
     */
    accepted(key: string): void {
      const queue = queueOf(key)
      if (queue === undefined) return countAccepted(key)
      queue.accepted += 1
      queue.intervalMs = Math.max(MIN_INTERVAL_MS, queue.intervalMs * FASTER)
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
// The shortest interval between calls. It allows ten calls per second, as the gateway does for a realm. A queue begins
// with this interval. If enough calls were accepted in the second before the first 429, the queue begins with their
// rate instead.
const MIN_INTERVAL_MS = 100
const MAX_INTERVAL_MS = 60_000
// A target may accept all calls of a second at its beginning and reject the rest, so a call rate must be measured over
// at least a second.
const MIN_MEASURED_MS = 1_000
const MIN_MEASURED_CALLS = 3
/** The maximum number of keys for which accepted calls are counted. */
const MAX_RECENT = 10_000
/**
 * A queue that has made fewer calls than its call rate permits may catch up on the missing calls of the last second,
 * but not on older ones.
 */
const BURST_MS = 1_000
// The following factors were chosen by the simulation in the test. With them, a queue makes 80 to 90 % of the permitted
// calls and gets a 429 for one in 50 calls, and a worker claims each run 2.4 times on average.
const SLOWER = 1.05
const FASTER = 0.998
const SPACING = 0.9
