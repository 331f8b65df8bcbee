/**
 * Returns a function that runs single calls in batches, without a timer: calls that arrive while a batch is in
 * flight form the next one. One statement for many messages makes a message per step cheap (3 to 10 times the
 * throughput of one statement each), and a lone call is not delayed.
 *
 * The calls of a batch that fails are repeated one by one, so that one bad entry fails alone. Without `retries` all
 * of them fail, which is right where a second attempt would hide the effect of the first one.
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
      // Messages are delivered several at a time: the batch starts after all calls of this turn of the event loop.
      if (queue.length === 1) setImmediate(() => void start())
    })
}
