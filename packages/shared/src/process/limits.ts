export interface Semaphore {
  /** Runs `task` as soon as a permit is free, in the order of the calls; settles with the result of the task. */
  run<T>(task: () => Promise<T>): Promise<T>
  /**
   * Resolves with the function that returns the permit. Resolves with `null` if the queue is full, or if no permit
   * became free within `waitMs` milliseconds.
   */
  acquire(limits: QueueLimits): Promise<(() => void) | null>
}

export interface QueueLimits {
  /** The maximum number of waiting callers. */
  readonly queueLength: number
  readonly waitMs: number
  /**
   * The group of the caller, such as its network. The groups with waiting callers get permits in turn, so a group with
   * many callers does not delay the others. If the queue is full, the last caller of the group with the most waiting
   * callers makes room for a caller of a smaller group.
   */
  readonly lane?: string
  /** The maximum number of waiting callers of one group; `queueLength` by default. */
  readonly laneLength?: number
}

interface Waiting {
  /** Settles the call of `acquire`, with a permit or without one. */
  settle(hasPermit: boolean): void
}

/**
 * Creates a counting semaphore with `permits` permits. The waiting callers of a group get a permit in the order of their
 * calls.
 */
export function createSemaphore(permits: number): Semaphore {
  let free = permits
  /** The waiting callers of each group, in order. The first group gets the next permit. */
  const lanes = new Map<string, Set<Waiting>>()
  let size = 0

  function remove(lane: string, waiting: Waiting): void {
    const queue = lanes.get(lane)
    if (queue?.delete(waiting) !== true) return
    size -= 1
    if (queue.size === 0) lanes.delete(lane)
  }

  function release(): void {
    // The next waiting caller gets the permit directly, so that no later call can overtake this caller.
    const [first] = lanes
    const [next] = first?.[1] ?? []
    if (first === undefined || next === undefined) {
      free += 1
      return
    }
    const [lane, queue] = first
    remove(lane, next)
    // The group goes to the end of the order.
    if (lanes.delete(lane)) lanes.set(lane, queue)
    next.settle(true)
  }

  /** Returns whether there is room for a caller of the group. If necessary, a caller of the largest group leaves. */
  function makeRoom(lane: string, { queueLength, laneLength = queueLength }: QueueLimits): boolean {
    const own = lanes.get(lane)?.size ?? 0
    if (own >= laneLength) return false
    if (size < queueLength) return true
    let [largest, queue]: readonly [string, ReadonlySet<Waiting>] = [lane, new Set()]
    for (const [other, others] of lanes)
      if (others.size > queue.size) [largest, queue] = [other, others]
    const last = [...queue].at(-1)
    if (last === undefined || queue.size <= own + 1) return false
    remove(largest, last)
    last.settle(false)
    return true
  }

  function acquire(limits?: QueueLimits): Promise<(() => void) | null> {
    if (free > 0) {
      free -= 1
      return Promise.resolve(release)
    }
    const lane = limits?.lane ?? ''
    if (limits !== undefined && !makeRoom(lane, limits)) return Promise.resolve(null)
    return new Promise((resolve) => {
      const waiting: Waiting = {
        settle(hasPermit) {
          clearTimeout(timer)
          resolve(hasPermit ? release : null)
        },
      }
      const queue = lanes.get(lane) ?? new Set()
      lanes.set(lane, queue.add(waiting))
      size += 1
      const timer =
        limits &&
        setTimeout(() => {
          remove(lane, waiting)
          resolve(null)
        }, limits.waitMs)
    })
  }

  return {
    acquire,
    async run(task) {
      await acquire()
      try {
        return await task()
      } finally {
        release()
      }
    },
  }
}

/** Limits the rate of an operation that clients can cause without a service key. */
export interface RateLimit {
  /**
   * Returns whether the operation may run now. If so, the operation is counted. `lane` is the group of the caller, such
   * as its network.
   */
  take(lane?: string): boolean
}

/**
 * Allows `count` operations in each interval of `intervalMs`, of which one group of callers can use `perLane`; all by
 * default. `now` is a clock in milliseconds.
 */
export function createRateLimit(options: {
  readonly count: number
  readonly intervalMs: number
  readonly now: () => number
  readonly perLane?: number
}): RateLimit {
  const { count, intervalMs, now, perLane = count } = options
  let startedAt = Number.NEGATIVE_INFINITY
  let taken = 0
  /** The counted operations of each group. At most `count` groups have one. */
  let byLane = new Map<string, number>()
  return {
    take(lane = '') {
      if (now() - startedAt >= intervalMs) {
        startedAt = now()
        taken = 0
        byLane = new Map()
      }
      const own = byLane.get(lane) ?? 0
      if (taken >= count || own >= perLane) return false
      taken += 1
      byLane.set(lane, own + 1)
      return true
    },
  }
}
