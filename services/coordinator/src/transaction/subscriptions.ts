/** The part of the port `TransactionSource` that stores which provider events the replicas of a process want. */
export interface Subscriptions {
  /**
   * Stores that this replica wants the events with these routing keys for a process. Returns the routing keys that some
   * replica has stored within the last {@link SUBSCRIPTION_MS}, in no order. Replicas can have two versions of a
   * definition while the first replaces the second, so a replica must not remove a binding that another replica wants.
   */
  keepSubscriptions(process: string, routingKeys: readonly string[]): Promise<readonly string[]>
  /**
   * Returns the routing keys that are stored for any process, each once and in no order, however long ago they were
   * stored: after an outage of all replicas, some may not have stored theirs again yet.
   */
  wantedChanges(): Promise<readonly string[]>
}

/** How long a routing key is kept for a process that no replica wants any more. */
export const SUBSCRIPTION_MS = 600_000
