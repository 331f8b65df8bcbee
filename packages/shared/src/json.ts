import type { z } from 'zod'

/**
 * Parses text from another process. Returns `undefined`, which is not a JSON value, if the text is not JSON. Nothing
 * is thrown, because malformed text from another process is expected.
 */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/**
 * Parses text as JSON and validates it with a schema. Returns `null` if the text is not JSON or does not match the
 * schema.
 */
export function parseJsonAs<Schema extends z.ZodType>(
  schema: Schema,
  text: string,
): z.output<Schema> | null {
  const parsed = schema.safeParse(parseJson(text))
  return parsed.success ? parsed.data : null
}

/** Parses text as a JSON object. Returns `null` if the text is not JSON or contains another kind of value. */
export function parseJsonObject(text: string): Readonly<Record<string, unknown>> | null {
  return asObject(parseJson(text))
}

/** Returns `value` typed as an object if it is a JSON object; `null` for arrays, primitives and `null`. */
export const asObject = (value: unknown): Readonly<Record<string, unknown>> | null =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Readonly<Record<string, unknown>>)
    : null
