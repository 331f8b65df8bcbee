import { z } from 'zod'

/** Problem details (RFC 9457) with a stable `code`. Further members depend on the code (docs/errors.md). */
export const Problem = z
  .object({
    type: z.string(),
    title: z.string(),
    status: z.int(),
    code: z.string(),
    detail: z.string().optional(),
    instance: z.string().optional(),
  })
  .loose()
export type Problem = z.output<typeof Problem>
