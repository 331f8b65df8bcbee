import type { IntegrationError } from '@integration-host/shared/errors'
import type { CallerRequest, CallerResponse } from './caller.ts'
import type { RequestBody } from './request-body.ts'
import type { CompanyTarget } from './target.ts'

/** A caller's request to `/v3/company/…` that the gateway has accepted and forwards to the accounting API. */
export interface CompanyCall {
  readonly request: CallerRequest
  readonly response: CallerResponse
  /** The request body; `null` if the request has none. */
  readonly body: RequestBody | null
  readonly target: CompanyTarget
  /** The id of the caller's key, for the log. */
  readonly keyId: string
  /**
   * The id of the call. The gateway sends it to the caller and logs it, so that an operator can find the log entry of a
   * response.
   */
  readonly requestId: string
}

/** The result of a forwarded call, for the log and the metrics. */
export interface CallResult {
  /**
   * The error that must still be sent to the caller; `null` if a response was sent or the caller has closed its
   * connection.
   */
  readonly error: IntegrationError | null
  /** True if the caller closed its connection before the response was complete. */
  readonly isAbandoned: boolean
  /** True if the response was truncated after the response head had been sent. */
  readonly isCut: boolean
  readonly attempts: number
  /** Milliseconds for which the call waited for a permit, a token, the request body or the next attempt. */
  readonly waitedMs: number
  /** Milliseconds between sending a request upstream and receiving the response head, summed over all attempts. */
  readonly upstreamMs: number
  /**
   * The header `intuit_tid` of the last upstream response, by which Intuit's support finds a request; `null` if no
   * response had the header.
   */
  readonly traceId: string | null
  /** The beginning of the body of a relayed response with a status of 400 or above; `null` if there is none. */
  readonly errorStart: Buffer | null
}
