import type { z } from 'zod'

/** What a message says, or null when it is not what the schema wants. */
export function parsed<Schema extends z.ZodType>(
  schema: Schema,
  content: Buffer,
): z.output<Schema> | null {
  try {
    return schema.parse(JSON.parse(content.toString('utf8')))
  } catch {
    return null
  }
}
