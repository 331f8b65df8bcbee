/** Why a step is aborted from outside. */
export type AbortReason = 'timeout' | 'lease_lost' | 'shutdown'

/**
 * Aborts a step, or blocks only those of its calls that have not been sent. It does what two AbortControllers
 * would do, but every step would pay for both; here an AbortSignal is created for a step that reads it.
 */
export class StepAbort {
  #reason: AbortReason | null = null
  #areNewCallsBlocked = false
  #controller: AbortController | null = null
  readonly #listeners = new Set<() => void>()

  /** `null` while the step may continue. */
  get reason(): AbortReason | null {
    return this.#reason
  }

  /** No further call may be sent; the response to a sent one may still arrive, unless there is a `reason`. */
  get areNewCallsBlocked(): boolean {
    return this.#areNewCallsBlocked
  }

  /** Aborts with the reason. */
  get signal(): AbortSignal {
    this.#controller ??= new AbortController()
    if (this.#reason !== null) this.#controller.abort(this.#reason)
    return this.#controller.signal
  }

  blockNewCalls(): void {
    this.#areNewCallsBlocked = true
    this.#notify()
  }

  /** Aborts the step; the first reason counts. */
  abort(reason: AbortReason): void {
    if (this.#reason !== null) return
    this.#reason = reason
    this.#areNewCallsBlocked = true
    this.#controller?.abort(reason)
    this.#notify()
  }

  /** Calls `listener` with every later change, until `unwatch`. */
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
