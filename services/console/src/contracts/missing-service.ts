/** A service that did not respond. The response of the console contains only the parts of the other services. */
import { z } from 'zod'

export const MissingService = z
  .object({
    Service: z.string(),
    Code: z.string().meta({ description: 'the code of the error, as in docs/errors.md' }),
    Detail: z.string().meta({ description: 'such as "coordinator does not respond (ETIMEDOUT)"' }),
    Since: z.iso.datetime().nullable().meta({
      description: 'since when the service has not responded; null if it responded with an error',
    }),
  })
  .meta({ ref: 'MissingService' })
export type MissingService = z.output<typeof MissingService>
