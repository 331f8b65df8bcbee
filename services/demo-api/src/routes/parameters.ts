import { IntegrationError } from '@integration-host/shared/errors'
import type { Context } from 'hono'
import { z } from 'zod'

/** Returns the schema of a string of 1 to `max` characters without control characters. */
export const plainText = (max: number) =>
  z
    .string()
    .min(1, 'must not be empty')
    .max(max, `must have at most ${max} characters`)
    .refine((text) => !/\p{Cc}/u.test(text), 'must not contain control characters')

const TIMESTAMP =
  /^(\d{4}-\d{2}-\d{2})T([01]\d|2[0-3]):[0-5]\d(:[0-5]\d([.,]\d{1,9})?)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$/

/**
 * Returns the schema of an ISO 8601 date and time with an offset. The day must exist, and the year must be between 0001
 * and 9999.
 */
export const timestampText = () =>
  z
    .string()
    .min(1, 'must not be empty')
    .max(64, 'must have at most 64 characters')
    .refine((text) => {
      const date = TIMESTAMP.exec(text)?.[1]
      if (date === undefined || date.startsWith('0000')) return false
      const midnight = new Date(`${date}T00:00:00Z`)
      // `Date` reads February 30 as March 2, so the parsed day is compared with the day in the text.
      return !Number.isNaN(midnight.getTime()) && midnight.toISOString().startsWith(date)
    }, 'must be ISO 8601 with offset, such as 2026-11-20T10:00:00+00:00 (a + is written %2B)')

/**
 * Reads the parameters of a request from the query. On POST, also reads them from a form in the body.
 *
 * The router would silently use the first value of a repeated parameter and replace invalid bytes. This function
 * rejects a request with an unknown parameter, a repeated parameter, or a value that is not well-formed UTF-8 after one
 * percent-decoding.
 *
 * @throws {IntegrationError} invalid_request, with the name of the parameter but never its value.
 */
export async function readParameters<Shape extends z.ZodObject>(
  c: Context,
  schema: Shape,
): Promise<z.output<Shape>> {
  const pairs = decode(new URL(c.req.url).search.slice(1))
  const [mediaType] = (c.req.header('Content-Type') ?? '').split(';')
  if (
    c.req.method === 'POST' &&
    mediaType?.trim().toLowerCase() === 'application/x-www-form-urlencoded'
  ) {
    pairs.push(...decode(await c.req.text()))
  }
  const values = new Map<string, string>()
  for (const [name, value] of pairs) {
    if (!Object.hasOwn(schema.shape, name)) throw invalid('unknown parameter')
    if (values.has(name)) throw invalid(`${name}: must be given once`)
    values.set(name, value)
  }
  const parsed = schema.safeParse(Object.fromEntries(values))
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  const name = issue?.path.map(String).join('.') ?? ''
  throw invalid(`${name}: ${values.has(name) ? issue?.message : 'is missing'}`)
}

const invalid = (message: string): IntegrationError =>
  new IntegrationError('invalid_request', message)

/**
 * Decodes `application/x-www-form-urlencoded`. Rejects a `%` that is not followed by two hex digits, and bytes that are
 * not valid UTF-8.
 */
function decode(encoded: string): [string, string][] {
  try {
    return encoded
      .split('&')
      .filter((pair) => pair !== '')
      .map((pair) => {
        const end = pair.includes('=') ? pair.indexOf('=') : pair.length
        return [unescape(pair.slice(0, end)), unescape(pair.slice(end + 1))]
      })
  } catch (error) {
    throw new IntegrationError('invalid_request', 'the parameters are not well-formed UTF-8', {
      cause: error,
    })
  }
}

const unescape = (text: string): string => decodeURIComponent(text.replaceAll('+', ' '))
