import type { z } from 'zod'

/** The content of a message; `null` if it is not JSON, or does not match the schema. */
export function parseMessage<Schema extends z.ZodType>(
  schema: Schema,
  content: Buffer,
): z.output<Schema> | null {
  try {
    return schema.parse(JSON.parse(content.toString('utf8')))
  } catch {
    return null
  }
}
