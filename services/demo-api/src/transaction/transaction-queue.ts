/** What became of a call to the coordinator; everything foreseen is an outcome, not an exception. */
export type QueueOutcome =
  /** Durable at the coordinator, now or since an earlier call. */
  { readonly kind: 'queued' } | { readonly kind: 'conflict' } | NotDone

export type ReplayOutcome =
  | { readonly kind: 'started' }
  | { readonly kind: 'unknown' }
  | { readonly kind: 'active' }
  | NotDone

export type NotDone =
  /** Nobody answered, or a coordinator that cannot work now; the same call later may do. */
  | { readonly kind: 'unavailable'; readonly retryAfterSeconds: number }
  /** An answer that no waiting mends, such as a key that it does not know. */
  | { readonly kind: 'refused' }

/** The door to the coordinator's `OrderProcess`. The number is the identifier and the initial data. */
export interface TransactionQueue {
  queue(number: string): Promise<QueueOutcome>
  replay(number: string): Promise<ReplayOutcome>
}
