export interface Semaphore {
  /** Runs `task` as soon as a permit is free, in the order of the calls; settles with the result of the task. */
  run<T>(task: () => Promise<T>): Promise<T>
  /**
   * Resolves with the function that returns the permit. Resolves with `null` if `queueLength` callers are waiting
   * already, or if no permit became free within `waitMs` milliseconds.
   */
  acquire(limits: QueueLimits): Promise<(() => void) | null>
}

export interface QueueLimits {
  readonly queueLength: number
  readonly waitMs: number
}

/**
 * Creates a counting semaphore with `permits` permits. The waiting callers get a permit in the order of their calls.
 */
export function createSemaphore(permits: number): Semaphore {
  let free = permits
  /** The waiting callers in order. Each element is a function that gives its caller a permit. */
  const waiting = new Set<() => void>()

  function release(): void {
    // The next waiting caller gets the permit directly, so that no later call can overtake this caller.
    const [next] = waiting
    if (next === undefined) free += 1
    else {
      waiting.delete(next)
      next()
    }
  }

  function acquire(limits?: QueueLimits): Promise<(() => void) | null> {
    if (free > 0) {
      free -= 1
      return Promise.resolve(release)
    }
    if (limits !== undefined && waiting.size >= limits.queueLength) return Promise.resolve(null)
    return new Promise((resolve) => {
      const give = (): void => {
        clearTimeout(timer)
        resolve(release)
      }
      waiting.add(give)
      const timer =
        limits &&
        setTimeout(() => {
          waiting.delete(give)
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
