/** The reasons for which a step is aborted from outside. */
export type AbortReason = 'timeout' | 'lease_lost' | 'shutdown'

/**
 * Aborts a step, or blocks only those of its calls that were not sent yet. Two AbortControllers would do the same, but
 * would cost time in every step. Here an AbortSignal is created only if the step reads it.
 */
export class StepAbort {
  #reason: AbortReason | null = null
  #areNewCallsBlocked = false
  #controller: AbortController | null = null
  readonly #listeners = new Set<() => void>()

  /** The reason of the abort; `null` while the step may continue. */
  get reason(): AbortReason | null {
    return this.#reason
  }

  /**
   * Whether the step may send no further call. The response to a call that was already sent may still arrive, unless
   * there is a `reason`.
   */
  get areNewCallsBlocked(): boolean {
    return this.#areNewCallsBlocked
  }

  /** The AbortSignal of the step. It is aborted with the `reason` when the step is aborted. */
  get signal(): AbortSignal {
    this.#controller ??= new AbortController()
    if (this.#reason !== null) this.#controller.abort(this.#reason)
    return this.#controller.signal
  }

  blockNewCalls(): void {
    this.#areNewCallsBlocked = true
    this.#notify()
  }

  /** Aborts the step. Later calls do not change the reason. */
  abort(reason: AbortReason): void {
    if (this.#reason !== null) return
    this.#reason = reason
    this.#areNewCallsBlocked = true
    this.#controller?.abort(reason)
    this.#notify()
  }

  /** Calls `listener` when new calls are blocked and when the step is aborted, until `unwatch` is called. */
  watch(listener: () => void): void {
    this.#listeners.add(listener)
  }

  unwatch(listener: () => void): void {
    this.#listeners.delete(listener)
  }

  #notify(): void {
    for (const listener of this.#listeners) listener()
  }
}
