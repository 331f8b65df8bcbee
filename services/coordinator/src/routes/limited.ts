import { IntegrationError } from '@integration-host/shared/errors'
import type { MiddlewareHandler } from 'hono'
import { bodyLimit } from 'hono/body-limit'
import { MAX_TRANSACTION_BYTES } from '../transaction/queueable.ts'

/** Rejects a body that is larger than the maximum size of a transaction. Only a bulk request may have a larger body. */
export const limited: MiddlewareHandler = bodyLimit({
  maxSize: MAX_TRANSACTION_BYTES,
  onError: () => {
    throw new IntegrationError(
      'payload_too_large',
      `the body may have at most ${MAX_TRANSACTION_BYTES} bytes`,
    )
  },
})
