export interface Semaphore {
  /** Runs `task` as soon as a permit is free, in the order of the calls; settles as the task does. */
  run<T>(task: () => Promise<T>): Promise<T>
}

/** A counting semaphore with `permits` permits: at most so many tasks run at a time. */
export function createSemaphore(permits: number): Semaphore {
  let free = permits
  const waiting: (() => void)[] = []
  return {
    async run(task) {
      if (free > 0) free -= 1
      else await new Promise<void>((resolve) => waiting.push(resolve))
      try {
        return await task()
      } finally {
        // The permit goes straight to the next waiter, so that no later call can overtake it.
        const next = waiting.shift()
        if (next === undefined) free += 1
        else next()
      }
    },
  }
}
