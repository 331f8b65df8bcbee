import type { StepAbort } from './step-abort.ts'

/**
 * The port to the targets of steps: makes one HTTP call. A foreseen failure is returned as an outcome instead
 * of thrown, because the outcome of the step depends on how far its call got.
 */
export type HttpCall = (request: CallRequest, limits: CallLimits) => Promise<CallOutcome>

export interface CallRequest {
  readonly method: string
  readonly url: URL
  readonly headers: Readonly<Record<string, string>>
  readonly body: string | null
}

export interface CallLimits {
  /**
   * An abort with a reason ends the call at any point. `blockNewCalls` ends the call only if nothing of it was
   * sent yet.
   */
  readonly abort: StepAbort
  /** The time limit of the whole call in milliseconds, including connecting. */
  readonly timeoutMs: number
}

/**
 * `isSent` means that some part of the call may have reached the target. `responseId` is the id that the target gave to
 * its response: `intuit_tid`, or else `X-Request-Id`.
 */
export type CallOutcome =
  | {
      readonly kind: 'answered'
      readonly status: number
      readonly body: string
      readonly retryAfter: string | null
      readonly responseId: string | null
    }
  /** No response, or an incomplete one. `reason` is a short code such as `ECONNREFUSED`. */
  | { readonly kind: 'failed'; readonly reason: string; readonly isSent: boolean }
  | { readonly kind: 'aborted'; readonly isSent: boolean }
  | {
      readonly kind: 'too_large'
      readonly status: number
      readonly retryAfter: string | null
      readonly responseId: string | null
    }

/** What is stored of the last call of an attempt, so that it can be found in the logs of its target. */
export interface StepCall {
  readonly method: string
  /** Without user info, query and fragment, which may contain secrets. */
  readonly url: string
  readonly traceId: string
  /** `null` if there was no response, or if it had no id. */
  readonly responseId: string | null
}

/** The maximum length of a response body that is stored with an item. */
export const MAX_RESPONSE_BYTES = 1_048_576
