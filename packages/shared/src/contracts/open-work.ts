/** What a key has made that has not ended: the responses of `/keys/{id}/open` of token-service and coordinator. */
import { z } from 'zod'

export const OpenLinks = z
  .object({ ConnectLinks: z.int().nonnegative() })
  .meta({ ref: 'OpenLinksOfKey' })
export const OpenOperations = z
  .object({ Operations: z.int().nonnegative() })
  .meta({ ref: 'OpenOperationsOfKey' })
