import { setTimeout as delay } from 'node:timers/promises'
import type { Client } from './client.ts'

const CONCURRENCY = 4
const PAUSE_MS = 500

/**
 * Connects companies. If an attempt to connect a company fails, the attempt is repeated under the same realm until
 * `isOverdue` returns true. Resolves with the realms that were connected.
 */
export async function connectCompanies(
  client: Client,
  realms: readonly string[],
  isOverdue: () => boolean,
): Promise<readonly string[]> {
  const connected: string[] = []
  const next = realms[Symbol.iterator]()
  const worker = async (): Promise<void> => {
    for (const realm of next) {
      while (!isOverdue()) {
        if (await client.connect(realm)) {
          connected.push(realm)
          break
        }
        await delay(PAUSE_MS)
      }
    }
  }
  await Promise.all(Array.from({ length: CONCURRENCY }, worker))
  return connected
}
