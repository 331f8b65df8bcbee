/**
 * Returns a function that combines single calls into batches. The calls that arrive while a batch is in flight form the
 * next batch, so no timer delays a call. One SQL statement for many messages has 3 to 10 times the throughput of one
 * statement per message.
 *
 * If a batch fails, its calls are repeated one by one, so that only the calls with bad input fail. If `retries` is
 * false, all calls of a failed batch fail. `retries` must be false if a call of a failed batch may have taken effect,
 * because the second attempt of this call could then return another result.
 */
export function batched<Input, Result>(
  run: (inputs: readonly Input[]) => Promise<readonly Result[]>,
  { maxSize = 200, retries = true }: { maxSize?: number; retries?: boolean } = {},
): (input: Input) => Promise<Result> {
  interface Waiting {
    readonly input: Input
    readonly resolve: (result: Result) => void
    readonly reject: (error: unknown) => void
  }
  const queue: Waiting[] = []
  let isRunning = false

  async function settle(batch: readonly Waiting[]): Promise<void> {
    try {
      const results = await run(batch.map(({ input }) => input))
      batch.forEach(({ resolve }, index) => resolve(results[index] as Result))
    } catch (error) {
      if (batch.length === 1 || !retries) for (const { reject } of batch) reject(error)
      else for (const one of batch) await settle([one])
    }
  }

  async function start(): Promise<void> {
    if (isRunning) return
    isRunning = true
    while (queue.length > 0) await settle(queue.splice(0, maxSize))
    isRunning = false
  }

  return (input) =>
    new Promise<Result>((resolve, reject) => {
      queue.push({ input, resolve, reject })
      // Several messages are often delivered in one turn of the event loop. The batch starts after this turn, so that
      // it includes the calls for all of these messages.
      if (queue.length === 1) setImmediate(() => void start())
    })
}
