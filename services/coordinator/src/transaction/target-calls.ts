/** The limits of a target, from the definition of its process. At least one of them is set. */
export interface TargetLimits {
  /** The time from one call to the next in milliseconds; 0 if the number of calls per second is not limited. */
  readonly intervalMs: number
  /** The maximum number of calls in flight; `null` if it is not limited. */
  readonly concurrent: number | null
}

/** Each process has its own targets: the target of the same name in another process has other limits. */
export interface TargetKey {
  readonly Process: string
  readonly Target: string
}

export interface CallRequest extends TargetKey {
  readonly limits: TargetLimits
  /** A unique name of the slot that the call occupies if the number of calls in flight is limited. */
  readonly slot: string
  /** If the call would have to wait longer than this, nothing is reserved. */
  readonly maxWaitMs: number
  /** Milliseconds from the time of the call until the slot expires, if it is not released before. */
  readonly holdMs: number
}

export type CallReservation =
  /** The call may be sent `waitMs` milliseconds from now. It occupies its slot until `releaseCalls`. */
  | { readonly kind: 'reserved'; readonly waitMs: number }
  /** The next call is possible in `waitMs` milliseconds, which is longer than the caller can wait. */
  | { readonly kind: 'later'; readonly waitMs: number }
  /** As many calls are in flight as the target may have. */
  | { readonly kind: 'full' }

/**
 * The part of the transaction source that counts the calls to targets with limits, so that the limits hold over all
 * replicas. The store has one row for each target: the earliest time of the next call, and the slots of the calls in
 * flight. It knows no limits: the limits of the caller apply, so replicas may have different versions of a process.
 */
export interface TargetCalls {
  /** Reserves the time of the next call, and a slot for it. Both are reserved, or neither. */
  reserveCall(request: CallRequest): Promise<CallReservation>
  /** Releases the slots of calls that ended or were not sent. Unknown slots are ignored. */
  releaseCalls(target: TargetKey, slots: readonly string[]): Promise<void>
  /** Allows no call in the next `ms` milliseconds. Calls that have a reservation are not affected. */
  coolDownTarget(target: TargetKey, ms: number): Promise<void>
}
