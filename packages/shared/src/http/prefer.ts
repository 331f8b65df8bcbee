import type { Context } from 'hono'

/** Matches each preference of a list. A comma within a quoted string does not end a preference. */
const PREFERENCE = /(?:"(?:\\(?:.|$)|[^"\\])*(?:"|$)|[^,"])+/g
/** Matches the preference `wait` with its value. Parameters of the preference follow a semicolon. */
const WAIT = /^\s*wait\s*(?:=([^;]*))?(?:;|$)/i

/**
 * Returns the number of seconds for which the client is prepared to wait for the result of its request, from the
 * preference `wait` of the header `Prefer` (RFC 7240 §4.3). Returns `null` if the header is absent, has no such
 * preference, or if its value is not a whole number of at most nine digits, because a server ignores a preference that
 * it cannot process (RFC 7240 §2).
 */
export function preferredWaitSeconds(c: Context): number | null {
  const preferences = c.req.header('Prefer')?.match(PREFERENCE) ?? []
  // Only the first of several preferences with the same name counts.
  const value = preferences.map((one) => WAIT.exec(one)).find((wait) => wait !== null)?.[1]
  const seconds = /^(\d{1,9}|"\d{1,9}")$/.exec(value?.trim() ?? '')?.[1]
  return seconds === undefined ? null : Number(seconds.replaceAll('"', ''))
}

/** The OpenAPI description of the response header `Preference-Applied` (RFC 7240 §3). */
export const PREFERENCE_APPLIED = {
  'Preference-Applied': {
    description: 'the wait that the service has applied, such as `wait=30`',
    schema: { type: 'string' as const },
  },
}
