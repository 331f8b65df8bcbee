import type { HeaderList } from '@integration-host/shared/http/header-list'
import type { StepAbort } from './step-abort.ts'

/**
 * The port through which steps call their targets: makes one HTTP call. A failed call is returned as an outcome instead
 * of being thrown, because the outcome of the step depends on how far the call got.
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
   * Aborts the call. `abort` with a reason ends the call at any time; `blockNewCalls` ends it only if no part of the
   * request was sent yet.
   */
  readonly abort: StepAbort
  /** The time limit of the whole call in milliseconds, including connecting. */
  readonly timeoutMs: number
  /** The maximum size of the response body; {@link MAX_RESPONSE_BYTES} by default. */
  readonly maxBytes?: number | undefined
}

/**
 * `isSent` means that some part of the call may have reached the target. `responseId` is the id that the target gave to
 * its response: `intuit_tid`, or else `X-Request-Id`.
 */
export type CallOutcome =
  | {
      readonly kind: 'answered'
      readonly status: number
      readonly headers: HeaderList
      readonly body: string
      readonly retryAfter: string | null
      readonly responseId: string | null
      /** What the body is in place of the JSON that the call has asked for. Only successful responses have it. */
      readonly inPlaceOfJson?: string
    }
  /** The call got no response, or only an incomplete one. `reason` is a short code such as `ECONNREFUSED`. */
  | { readonly kind: 'failed'; readonly reason: string; readonly isSent: boolean }
  | { readonly kind: 'aborted'; readonly isSent: boolean }
  /** A successful response whose body cannot be read. `why` continues the sentence "the body is …". */
  | {
      readonly kind: 'unreadable'
      readonly errorClass: 'response_not_text' | 'response_coding_unknown'
      readonly why: string
      readonly status: number
      readonly retryAfter: string | null
      readonly responseId: string | null
    }
  | {
      readonly kind: 'too_large'
      readonly status: number
      readonly retryAfter: string | null
      readonly responseId: string | null
    }

/**
 * Header fields that frame the message or apply only to one connection (RFC 9110 §7.6.1). Only the HTTP client may set
 * these fields.
 */
export const CONNECTION_HEADERS: ReadonlySet<string> = new Set([
  'connection',
  'content-length',
  'expect',
  'host',
  'keep-alive',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
])

/** The maximum length of a response body that is stored with an item. */
export const MAX_RESPONSE_BYTES = 1_048_576
