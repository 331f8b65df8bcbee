import type { DeadLetterStore } from '../run/dead-letter.ts'
import type { DeadLetterQueue } from '../worker/dead-letter-queue.ts'

/**
 * Returns the number of dead letters of each process: those in the store and those that are still in the queue. While
 * the broker is unavailable, only those in the store are counted. The result contains each loaded process, and every
 * other process that has dead letters.
 */
export async function countDeadLetters(
  store: Pick<DeadLetterStore, 'deadLetterCounts'>,
  queue: Pick<DeadLetterQueue, 'waiting'>,
  processes: readonly string[],
): Promise<ReadonlyMap<string, number>> {
  const counts = new Map(await store.deadLetterCounts())
  await Promise.all(
    processes.map(async (process) => {
      const waiting = (await queue.waiting(process)) ?? 0
      counts.set(process, (counts.get(process) ?? 0) + waiting)
    }),
  )
  return counts
}
