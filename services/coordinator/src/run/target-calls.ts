/** The limits of a target, from the definition of its process. At least one of the limits is set. */
export interface TargetLimits {
  /**
   * The minimum time from one call to the next, in milliseconds; 0 if the number of calls per second is not limited.
   */
  readonly intervalMs: number
  /** The maximum number of calls in flight; `null` if this number is not limited. */
  readonly concurrent: number | null
}

/**
 * The name of a target. Each process has its own targets, so two targets with the same name may have different limits.
 * `Process` is empty for a target that several processes share.
 */
export interface TargetKey {
  readonly Process: string
  readonly Target: string
}

export interface CallRequest extends TargetKey {
  readonly limits: TargetLimits
  /**
   * A unique name of the slot that the call occupies. The slot matters only if the number of calls in flight is
   * limited.
   */
  readonly slot: string
  /** The longest time that the call may wait. If the next possible call is later, nothing is reserved. */
  readonly maxWaitMs: number
  /** The milliseconds from the time of the call until its slot expires, if the slot is not released earlier. */
  readonly holdMs: number
}

export type CallReservation =
  /** The call may be sent `waitMs` milliseconds from now. It occupies its slot until `releaseCalls` is called. */
  | { readonly kind: 'reserved'; readonly waitMs: number }
  /** The next call is possible only in `waitMs` milliseconds, which is longer than the caller can wait. */
  | { readonly kind: 'later'; readonly waitMs: number }
  /** The calls in flight have reached the limit of the target. */
  | { readonly kind: 'full' }

/**
 * The part of the transaction source that counts the calls to targets with limits, so that the limits hold over all
 * replicas. The store has one row for each target: the earliest time of the next call, and the slots of the calls in
 * flight. The limits are not stored: each caller passes its own limits, so replicas may have different versions of a
 * process.
 */
export interface TargetCalls {
  /** Reserves the time of the next call together with a slot. If either is not available, reserves nothing. */
  reserveCall(request: CallRequest): Promise<CallReservation>
  /** Releases the slots of calls that ended or were not sent. Unknown slots are ignored. */
  releaseCalls(target: TargetKey, slots: readonly string[]): Promise<void>
  /**
   * Prevents new reservations for the next `ms` milliseconds. Calls that already have a reservation are not affected.
   */
  coolDownTarget(target: TargetKey, ms: number): Promise<void>
}
