const TIMESTAMP =
  /^(\d{4}-\d{2}-\d{2})T([01]\d|2[0-3]):[0-5]\d(:[0-5]\d([.,]\d{1,9})?)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$/

/**
 * Returns whether `text` is an ISO 8601 date and time with an offset. The day must exist, and the year must be between
 * 0001 and 9999.
 */
export function isTimestamp(text: string): boolean {
  const date = TIMESTAMP.exec(text)?.[1]
  if (date === undefined || date.startsWith('0000')) return false
  const midnight = new Date(`${date}T00:00:00Z`)
  // `Date` reads February 30 as March 2. A day that does not exist is therefore recognized by comparing the parsed day
  // with the day in the text.
  return !Number.isNaN(midnight.getTime()) && midnight.toISOString().startsWith(date)
}

/** Formats a time as ISO 8601 with milliseconds and a numeric offset, for example `2026-11-20T10:00:00.000+00:00`. */
export const timestamp = (at: Date): string => at.toISOString().replace('Z', '+00:00')
