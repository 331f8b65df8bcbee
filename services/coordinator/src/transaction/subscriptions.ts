/**
 * The part of the port `TransactionSource` that stores the routing keys of the provider events to which replicas
 * subscribe.
 */
export interface Subscriptions {
  /**
   * Stores that this replica subscribes to these routing keys for a process. Returns the routing keys to which any
   * replica has subscribed within the last {@link SUBSCRIPTION_MS}, in any order. A replica must not remove the binding
   * of such a key, because during an update replicas can have two versions of a definition.
   */
  keepSubscriptions(process: string, routingKeys: readonly string[]): Promise<readonly string[]>
  /**
   * Returns the routing keys that are stored for any process, without duplicates and in any order. Keys of any age are
   * returned, because after an outage of all replicas, some replicas may not have stored their keys again yet.
   */
  wantedChanges(): Promise<readonly string[]>
}

/**
 * For how long `keepSubscriptions` returns a routing key after the last replica has subscribed to it, in milliseconds.
 */
export const SUBSCRIPTION_MS = 600_000
