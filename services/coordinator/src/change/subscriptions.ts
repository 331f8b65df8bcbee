/**
 * The store of the routing keys of the provider events to which replicas subscribe. There is one row for each process,
 * and none for a process that has never subscribed to an event.
 */
import { installationValues } from '../records/installation.ts'
import { iso } from '../records/records.ts'
import type { TransactionSource } from '../run/transaction-source.ts'

/**
 * For how long `keepSubscriptions` returns a routing key after the last replica has subscribed to it, in milliseconds.
 */
export const SUBSCRIPTION_MS = 600_000
/**
 * For how long a routing key is stored, because after an outage of all replicas the change feed must still read the
 * changes with this key.
 */
const STORED_MS = 30 * 86_400_000
export type Subscriptions = ReturnType<typeof createSubscriptions>

export function createSubscriptions(source: Pick<TransactionSource, 'records'>) {
  /** For each process and routing key, the time at which a replica has last subscribed to it. */
  const stored = installationValues<Readonly<Record<string, string>>>(source, 'on:')
  return {
    /**
     * Stores that this replica subscribes to these routing keys for a process. Returns the routing keys to which any
     * replica has subscribed within the last {@link SUBSCRIPTION_MS}, in any order. A replica must not remove the
     * binding of such a key, because during an update replicas can have two versions of a definition.
     */
    async keepSubscriptions(
      process: string,
      routingKeys: readonly string[],
    ): Promise<readonly string[]> {
      let keptAt = 0
      const value = await stored.change(process, (known, now) => {
        keptAt = now
        if (known === undefined && routingKeys.length === 0) return undefined
        const kept = Object.entries(known ?? {}).filter(
          ([, at]) => Date.parse(at) > now - STORED_MS,
        )
        const added = routingKeys.map((key) => [key, iso(now)] as const)
        return Object.fromEntries([...kept, ...added])
      })
      return Object.entries(value ?? {})
        .filter(([, at]) => Date.parse(at) > keptAt - SUBSCRIPTION_MS)
        .map(([key]) => key)
    },
    /**
     * Returns the routing keys that are stored for any process, without duplicates and in any order. Keys of any age
     * are returned, because after an outage of all replicas, some replicas may not have stored their keys again yet.
     */
    async wantedChanges(): Promise<readonly string[]> {
      return [...new Set([...(await stored.all()).values()].flatMap(Object.keys))]
    },
  }
}
