/** The result of queuing a transaction. Expected failures of the coordinator are returned as results and not thrown. */
export type QueueOutcome =
  /** The coordinator has stored the transaction, either in this call or in an earlier call. */
  { readonly kind: 'queued' } | { readonly kind: 'conflict' } | NotDone

export type ReplayOutcome =
  | { readonly kind: 'started' }
  | { readonly kind: 'unknown' }
  | { readonly kind: 'active' }
  | NotDone

export type NotDone =
  /** The coordinator did not respond or reported a temporary failure. The same call may succeed later. */
  | { readonly kind: 'unavailable'; readonly retryAfterSeconds: number }
  /**
   * The coordinator rejected the call, for example with 401 because of an unknown service key. A retry cannot succeed.
   */
  | { readonly kind: 'rejected' }

/**
 * The port to the coordinator's business process `OrderProcess`. `number` is the transaction id. A queued transaction
 * also gets `number` as its initial data.
 */
export interface TransactionQueue {
  queue(number: string): Promise<QueueOutcome>
  replay(number: string): Promise<ReplayOutcome>
}
