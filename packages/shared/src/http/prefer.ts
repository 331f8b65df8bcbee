import type { Context } from 'hono'

/** Matches the preference `wait` in a list of preferences. Parameters of the preference are ignored. */
const WAIT = /(?:^|,)\s*wait\s*=\s*(?:(\d{1,9})|"(\d{1,9})")\s*(?:;[^,]*)?(?=,|$)/i

/**
 * Returns how many seconds the client is willing to wait for the result of its request (RFC 7240 §4.3, the preference
 * `wait` of the header `Prefer`); `null` if the header is absent or has no such preference. A preference with another
 * form is ignored, because a server must process a request as if such a preference were absent (RFC 7240 §2).
 */
export function preferredWaitSeconds(c: Context): number | null {
  const header = c.req.header('Prefer')
  if (header === undefined) return null
  const [, token, quoted] = WAIT.exec(header) ?? []
  const seconds = token ?? quoted
  return seconds === undefined ? null : Number(seconds)
}

/** The OpenAPI description of the header `Prefer`. */
export const preferParameter = (description: string) => ({
  name: 'Prefer',
  in: 'header' as const,
  required: false,
  description,
  schema: { type: 'string' as const },
})
