/** The outcomes of a call to the coordinator. Everything expected is an outcome, not an exception. */
export type QueueOutcome =
  /** Stored by the coordinator, by this call or an earlier one. */
  { readonly kind: 'queued' } | { readonly kind: 'conflict' } | NotDone

export type ReplayOutcome =
  | { readonly kind: 'started' }
  | { readonly kind: 'unknown' }
  | { readonly kind: 'active' }
  | NotDone

export type NotDone =
  /** No response, or the coordinator cannot work now; the same call may succeed later. */
  | { readonly kind: 'unavailable'; readonly retryAfterSeconds: number }
  /** A response that a retry does not change, such as 401 for an unknown service key. */
  | { readonly kind: 'rejected' }

/** Port to the coordinator's `OrderProcess`. The number is both the identifier and the initial data. */
export interface TransactionQueue {
  queue(number: string): Promise<QueueOutcome>
  replay(number: string): Promise<ReplayOutcome>
}
