/** The names of the credential store's keys. Each credential is one hash under its own name, `ACC-<realm>`. */

/** The keys that concern all credentials, under the names by which the scripts use them. */
export const KEYS = {
  /** Sorted set with score 0: the names of all credentials, in alphabetical order. */
  names: 'credentials:names',
  /** Sorted set: the time of a credential's next refresh, in epoch ms. */
  due: 'credentials:due',
  /** Sorted set: the expiry of an access token in epoch ms, of each credential whose grant is not rejected. */
  expiry: 'credentials:expiry',
  /** Set: the names of the credentials that have a fault. */
  faulted: 'credentials:faulted',
  /** Stream: outbox entries, each with the audit facts and events of one write. */
  outbox: 'credentials:outbox',
  /** Hash: the last version of each removed credential, at which a new grant of that name continues. */
  removed: 'credentials:removed',
  /** Number: the newest fencing token. */
  fence: 'credentials:fence',
  /** Stream: the audit log, whose entry number <Seq> has the id `<Seq>-0`. */
  auditLog: 'credentials:audit',
  /** Hash: `Seq` and `Hash` of the newest audit entry, and `UpTo`, the last outbox entry that is audited. */
  auditHead: 'credentials:audit-head',
  /** String with expiry: the replica that publishes the events of the outbox. */
  relayLease: 'lease:credentials:outbox',
} as const

/** The keys that a script about the credential `name` may use; `lease` holds its lease holder, with expiry. */
export const keysOf = (name: string) => ({ ...KEYS, credential: name, lease: `lease:${name}` })
