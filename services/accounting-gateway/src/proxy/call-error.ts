import { IntegrationError } from '@integration-host/shared/errors'
import type { HttpFailure } from '@integration-host/shared/http/client/exchange'

/** Returns what the caller is sent when an attempt without a response is not repeated. */
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

/** Returns the error that the caller is sent; one without a code of ours is a defect of the gateway. */
export const reportable = (error: Error): IntegrationError =>
  error instanceof IntegrationError
    ? error
    : new IntegrationError('internal_error', 'the call could not be forwarded', { cause: error })

/** The caller closed its connection; it cannot be sent anything. */
export class CallerGone extends Error {
  override readonly name = 'CallerGone'
}
