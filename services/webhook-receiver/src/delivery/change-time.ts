/**
 * Matches an RFC 3339 date and time with up to 12 fraction digits. The colon in the offset is optional, because
 * notifications in the legacy format omit it.
 */
const TIME = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,12}))?(Z|[+-]\d\d:?\d\d)$/i

/**
 * Parses the time in a notification. Returns it in UTC with milliseconds, such as `2026-11-23T17:05:09.179Z`; `null` if
 * the text is not a time. Intuit sends two forms: `2026-11-23T17:05:25.179851517Z` and `2015-10-05T14:42:19-0700`.
 */
export function parseChangeTime(text: unknown): string | null {
  const [, second = '', fraction = '', offset = ''] =
    (typeof text === 'string' && TIME.exec(text)) || []
  if (second === '') return null
  const zone = offset.length === 5 ? `${offset.slice(0, 3)}:${offset.slice(3)}` : offset
  const time = new Date(`${second}.${fraction.slice(0, 3).padEnd(3, '0')}${zone}`.toUpperCase())
  return Number.isNaN(time.getTime()) ? null : time.toISOString()
}
