/** Why a step is stopped from outside. */
export type AbortReason = 'timeout' | 'lost' | 'leaving'

/**
 * Stops a step, or only its calls that have not left. It does what two AbortControllers would, of which every
 * step would pay for both; an AbortSignal is made for the step that asks for one.
 */
export class StepAbort {
  #reason: AbortReason | null = null
  #areNewCallsBlocked = false
  #controller: AbortController | null = null
  readonly #listeners = new Set<() => void>()

  /** Null while the step may go on. */
  get reason(): AbortReason | null {
    return this.#reason
  }

  /** Nothing more may leave; what has left may be answered unless there is a `reason`. */
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
    this.#tell()
  }

  /** The first reason counts. */
  stop(reason: AbortReason): void {
    if (this.#reason !== null) return
    this.#reason = reason
    this.#areNewCallsBlocked = true
    this.#controller?.abort(reason)
    this.#tell()
  }

  /** Calls `listener` whenever something has changed from now on, until it is taken off. */
  watch(listener: () => void): void {
    this.#listeners.add(listener)
  }

  unwatch(listener: () => void): void {
    this.#listeners.delete(listener)
  }

  #tell(): void {
    for (const listener of this.#listeners) listener()
  }
}
