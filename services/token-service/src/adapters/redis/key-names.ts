/**
 * The names of the Redis keys of the credential store. Each credential is one hash, whose key is the name of the
 * credential: `ACC-<realm>`.
 */

/** The keys that all credentials share. The Lua scripts refer to the keys by the names of these members. */
export const KEYS = {
  /** Sorted set with score 0: the names of all credentials, in alphabetical order. */
  names: 'credentials:names',
  /** Sorted set: the time of each credential's next refresh, in epoch ms. */
  due: 'credentials:due',
  /** Sorted set: the access token expiry, in epoch ms, of each credential whose grant was not rejected. */
  expiry: 'credentials:expiry',
  /** Set: the names of the credentials that have a fault. */
  faulted: 'credentials:faulted',
  /** The common prefix of the sorted sets that are read for lists (list-index.ts). */
  index: 'credentials:index:',
  /** String: exists as soon as every credential has been added to the sets of its state and its fault class. */
  indexBuilt: 'credentials:index-built',
  /**
   * String with expiry: the id of the replica that currently adds the credentials to the sets of states and fault
   * classes.
   */
  indexLease: 'lease:credentials:index',
  /** Stream: the outbox. Each entry contains the audit entries and events of one write. */
  outbox: 'credentials:outbox',
  /** Hash: the last version of each removed credential. A new grant under the same name gets the next version. */
  removed: 'credentials:removed',
  /** Number: the newest fencing token. */
  fence: 'credentials:fence',
  /** Stream: the audit log. The entry with number <Seq> has the id `<Seq>-0`. */
  auditLog: 'credentials:audit',
  /** Stream: a copy of the audit entries of weight (audit-retention.ts), with the ids of the audit log. */
  auditKept: 'credentials:audit-kept',
  /**
   * Hash: `Seq` and `Hash` of the newest audit entry. `Kept` is the number of the newest entry whose weight was checked: a
   * replica of a release before 0.2 does not advance it. `UpTo` is the id of the last outbox entry that is in the audit
   * log.
   */
  auditHead: 'credentials:audit-head',
  /**
   * Hash: `RunId` is the run id of the Redis server on which a script last ran. `ChangedAt` is the time at which a
   * script first ran on this server, in epoch ms by the clock of the server.
   */
  server: 'credentials:server',
  /** String with expiry: the id of the replica that publishes the events of the outbox. */
  relayLease: 'lease:credentials:outbox',
} as const

/** The keys of a sink of the audit log. `position` has the last entry that the sink has taken, as JSON (AuditHead). */
export const sinkKeysOf = (sink: string) => ({
  lease: `lease:credentials:audit-sink:${sink}`,
  position: `credentials:audit-sink:${sink}`,
})

/**
 * The keys of a script about the credential `name`. `lease` stores the current lease holder and expires with the lease.
 * `adoption` stores the newest claim by which a process got the right to adopt a grant (adoption.ts), as `<epoch ms>
 * <owner> <id>`. The key `adoption` expires after a day.
 */
export const keysOf = (name: string) => ({
  ...KEYS,
  credential: name,
  lease: `lease:${name}`,
  adoption: `credentials:adoption:${name}`,
})
