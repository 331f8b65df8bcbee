const TIMESTAMP =
  /^(\d{4}-\d{2}-\d{2})T([01]\d|2[0-3]):[0-5]\d(:[0-5]\d([.,]\d{1,9})?)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$/

/** Whether `text` is an ISO 8601 date and time with an offset, on a day that the calendar has (years 0001 to 9999). */
export function isTimestamp(text: string): boolean {
  const date = TIMESTAMP.exec(text)?.[1]
  if (date === undefined || date.startsWith('0000')) return false
  const midnight = new Date(`${date}T00:00:00Z`)
  // Date parses February 30 as March 2.
  return !Number.isNaN(midnight.getTime()) && midnight.toISOString().startsWith(date)
}

/** ISO 8601 with a numeric offset, to the millisecond: `2026-11-20T10:00:00.000+00:00`. */
export const timestamp = (at: Date): string => at.toISOString().replace('Z', '+00:00')
