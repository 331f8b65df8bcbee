import { IntegrationError } from '@integration-host/shared/errors'
import type { HttpFailure } from '@integration-host/fast-http/exchange'

/** Returns the error for the caller after an attempt failed without a response and is not repeated. */
export function upstreamError(cause: HttpFailure): IntegrationError {
  switch (cause.kind) {
    case 'unsendable':
      return new IntegrationError('invalid_request', 'the request cannot be sent as it is', {
        cause,
      })
    case 'timeout':
      return new IntegrationError('upstream_timeout', 'the accounting API timed out', { cause })
    case 'unreachable':
      return new IntegrationError(
        'upstream_unreachable',
        'the accounting API sent no valid response',
        { cause },
      )
  }
}

/**
 * Returns the error to send to the caller. An error without one of the project's error codes is reported as an internal
 * error of the gateway.
 */
export const reportable = (error: Error): IntegrationError =>
  error instanceof IntegrationError
    ? error
    : new IntegrationError('internal_error', 'the call could not be forwarded', { cause: error })

/** Returns the error of a call whose caller has closed its connection. No response can be sent to such a caller. */
export class CallerGone extends Error {
  override readonly name = 'CallerGone'
}
