/** The outcome of queuing. Expected failures of the coordinator are outcomes, not exceptions. */
export type QueueOutcome =
  /** The coordinator has stored the transaction, by this call or an earlier one. */
  { readonly kind: 'queued' } | { readonly kind: 'conflict' } | NotDone

export type ReplayOutcome =
  | { readonly kind: 'started' }
  | { readonly kind: 'unknown' }
  | { readonly kind: 'active' }
  | NotDone

export type NotDone =
  /** The coordinator did not respond, or reported a temporary failure: the same call may succeed later. */
  | { readonly kind: 'unavailable'; readonly retryAfterSeconds: number }
  /** The coordinator rejected the call, for example with 401 for an unknown service key; a retry cannot help. */
  | { readonly kind: 'rejected' }

/** The port to the coordinator's `OrderProcess`. The number is both the transaction id and the initial data. */
export interface TransactionQueue {
  queue(number: string): Promise<QueueOutcome>
  replay(number: string): Promise<ReplayOutcome>
}
