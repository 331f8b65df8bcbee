/**
 * The store of the routing keys of the provider events to which replicas subscribe. There is one row for each process,
 * and none for a process that has never subscribed to an event.
 */
import { installation } from '../records/installation.ts'
import { changeRow } from '../records/records.ts'
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
const PREFIX = 'on:'
/** For each routing key, the time at which a replica has last subscribed to it. */
const SUBSCRIPTIONS = installation<Readonly<Record<string, string>>>(PREFIX)

export type Subscriptions = ReturnType<typeof createSubscriptions>

export function createSubscriptions(source: Pick<TransactionSource, 'records'>) {
  const records = source.records(SUBSCRIPTIONS)
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
      const Name = PREFIX + process
      let keptAt = 0
      const row = await changeRow(records, [Name], (known, now) => {
        keptAt = now
        if (known === undefined && routingKeys.length === 0) return undefined
        const kept = Object.entries(known?.Value ?? {}).filter(
          ([, at]) => Date.parse(at) > now - STORED_MS,
        )
        const added = routingKeys.map((key) => [key, new Date(now).toISOString()] as const)
        return { Name, Value: Object.fromEntries([...kept, ...added]) }
      })
      return Object.entries(row?.Value ?? {})
        .filter(([, at]) => Date.parse(at) > keptAt - SUBSCRIPTION_MS)
        .map(([key]) => key)
    },
    /**
     * Returns the routing keys that are stored for any process, without duplicates and in any order. Keys of any age
     * are returned, because after an outage of all replicas, some replicas may not have stored their keys again yet.
     */
    async wantedChanges(): Promise<readonly string[]> {
      return [...new Set((await records.rows()).flatMap(({ Value }) => Object.keys(Value)))]
    },
  }
}
