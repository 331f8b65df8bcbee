import { z } from 'zod'

/** RFC 9457 problem details with our stable `code`; the members beside these vary by code (docs/errors.md). */
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
