import type { IntegrationError } from '@integration-host/shared/errors'
import type { CallerRequest, CallerResponse } from './caller.ts'
import type { RequestBody } from './request-body.ts'
import type { CompanyTarget } from './target.ts'

/** A call that is to be forwarded. */
export interface CompanyCall {
  readonly request: CallerRequest
  readonly response: CallerResponse
  /** `null` if the request has no body. */
  readonly body: RequestBody | null
  readonly target: CompanyTarget
  /** Returned to the caller and written to the log, so that one can be found by the other. */
  readonly requestId: string
}

/** The result of a call, for the log and the metrics. */
export interface CallResult {
  /** What the caller still has to be sent; `null` if it has a response, or has closed its connection. */
  readonly error: IntegrationError | null
  /** The caller closed its connection before the response was complete. */
  readonly isAbandoned: boolean
  /** The response was truncated after its head had been sent. */
  readonly isCut: boolean
  readonly attempts: number
  /** Milliseconds spent waiting for a permit, a token or the next attempt. */
  readonly waitedMs: number
  /** Milliseconds from sending each request upstream to the head of its response, summed over the attempts. */
  readonly upstreamMs: number
  /** `intuit_tid` of the last response, which the provider's support asks for; `null` if there was none. */
  readonly traceId: string | null
}
