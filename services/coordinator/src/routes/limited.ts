import { IntegrationError } from '@integration-host/shared/errors'
import type { MiddlewareHandler } from 'hono'
import { bodyLimit } from 'hono/body-limit'
import { MAX_TRANSACTION_BYTES } from './contracts.ts'

/** Rejects bodies that are larger than a transaction may be. Only a bulk request may have a larger one. */
export const limited: MiddlewareHandler = bodyLimit({
  maxSize: MAX_TRANSACTION_BYTES,
  onError: () => {
    throw new IntegrationError(
      'payload_too_large',
      `the body may have at most ${MAX_TRANSACTION_BYTES} bytes`,
    )
  },
})
