/**
 * Returns a time in ISO 8601 with milliseconds, in the format of `toISOString`. The input is a time as PostgreSQL
 * prints it in UTC: `2026-11-20 09:30:00.25+00`, or in JSON `2026-11-20T09:30:00.25+00:00`. The input is parsed by
 * character index, because this function runs several times per transaction.
 */
export function isoTime(value: string): string {
  let digits = 0
  if (value[19] === '.') while (digits < 3 && isDigit(value.charCodeAt(20 + digits))) digits += 1
  const fraction = value.slice(20, 20 + digits).padEnd(3, '0')
  return `${value.slice(0, 10)}T${value.slice(11, 19)}.${fraction}Z`
}

const isDigit = (code: number): boolean => code >= 48 && code <= 57
