/** Returns a function that runs at most `max` calls at a time. Further calls wait in their order. */
export function createLimit(max: number): <Result>(work: () => Promise<Result>) => Promise<Result> {
  const waiting: (() => void)[] = []
  let running = 0
  return async (work) => {
    if (running < max) running += 1
    else await new Promise<void>((resolve) => waiting.push(resolve))
    try {
      return await work()
    } finally {
      // `running` stays the same, because the first waiting call starts in place of the call that has ended.
      const next = waiting.shift()
      if (next === undefined) running -= 1
      else next()
    }
  }
}
