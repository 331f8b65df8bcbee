import { keepOwner } from '@integration-host/shared/process/error-owner'

/** The reasons for which a step is aborted from outside. */
export type AbortReason = 'timeout' | 'lease_lost' | 'shutdown'

/**
 * Aborts a step, or blocks only those calls of the step that were not sent yet. Two AbortControllers per step would do
 * the same, but creating them costs time in every step. So an AbortSignal is created only if the step reads it.
 */
export class StepAbort {
  #reason: AbortReason | null = null
  #areNewCallsBlocked = false
  #controller: AbortController | null = null
  // A listener of the signal that throws belongs to the step that has read the signal.
  #withOwner: ReturnType<typeof keepOwner> | null = null
  // An array, because a step has at most a few listeners, and a Set takes more memory.
  #listeners: readonly (() => void)[] = []

  /** The reason of the abort; `null` while the step may continue. */
  get reason(): AbortReason | null {
    return this.#reason
  }

  /**
   * True if the step must not send further calls. As long as `reason` is `null`, a call that was already sent still
   * waits for its response.
   */
  get areNewCallsBlocked(): boolean {
    return this.#areNewCallsBlocked
  }

  /** The AbortSignal of the step. It is aborted with the `reason` when the step is aborted. */
  get signal(): AbortSignal {
    this.#controller ??= new AbortController()
    this.#withOwner ??= keepOwner()
    if (this.#reason !== null) this.#controller.abort(this.#reason)
    return this.#controller.signal
  }

  blockNewCalls(): void {
    this.#areNewCallsBlocked = true
    this.#notify()
  }

  /** Aborts the step. The first call sets the reason; later calls do not change it. */
  abort(reason: AbortReason): void {
    if (this.#reason !== null) return
    this.#reason = reason
    this.#areNewCallsBlocked = true
    this.#withOwner?.(() => this.#controller?.abort(reason))
    this.#notify()
  }

  /** Calls `listener` when new calls are blocked, and again when the step is aborted, until `unwatch` is called. */
  watch(listener: () => void): void {
    this.#listeners = [...this.#listeners, listener]
  }

  unwatch(listener: () => void): void {
    this.#listeners = this.#listeners.filter((each) => each !== listener)
  }

  #notify(): void {
    for (const listener of this.#listeners) listener()
  }
}
