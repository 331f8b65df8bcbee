import type { StepAbort } from './step-abort.ts'

/**
 * The port to the targets of steps: makes one HTTP call. A foreseen failure is an outcome, not an exception,
 * because the outcome of the step depends on how far its call got.
 */
export type HttpCall = (request: CallRequest, limits: CallLimits) => Promise<CallOutcome>

export interface CallRequest {
  readonly method: string
  readonly url: URL
  readonly headers: Readonly<Record<string, string>>
  readonly body: string | null
}

export interface CallLimits {
  /** An abort with a reason ends the call at any point; `blockNewCalls` ends it only while nothing of it was sent. */
  readonly abort: StepAbort
  /** Milliseconds for the whole call, including the connect. */
  readonly timeoutMs: number
}

/** `isSent`: something of the call may have reached the target. */
export type CallOutcome =
  | {
      readonly kind: 'answered'
      readonly status: number
      readonly body: string
      readonly retryAfter: string | null
    }
  /** No response, or an incomplete one. `reason` is a short code such as `ECONNREFUSED`. */
  | { readonly kind: 'failed'; readonly reason: string; readonly isSent: boolean }
  | { readonly kind: 'aborted'; readonly isSent: boolean }
  | { readonly kind: 'too_large'; readonly status: number; readonly retryAfter: string | null }

/** The longest response body that is stored with an item. */
export const MAX_RESPONSE_BYTES = 1_048_576
