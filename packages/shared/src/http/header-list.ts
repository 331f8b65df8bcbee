/**
 * Header fields as a flat list (`name, value, name, value`), like Node's `rawHeaders`. The list keeps the order,
 * spelling and repetition of the fields on the wire.
 */
export type HeaderList = readonly string[]

/**
 * Returns the value of the first field with this name, which is given in lower case; `null` if there is no such field.
 */
export function headerValue(list: HeaderList, name: string): string | null {
  for (let i = 0; i < list.length; i += 2) {
    const given = list[i] ?? ''
    // The comparison of the lengths is cheap and excludes most names.
    if (given.length === name.length && given.toLowerCase() === name) return list[i + 1] ?? ''
  }
  return null
}

/** Returns the values of all fields with this name, which is given in lower case. */
export function headerValues(list: HeaderList, name: string): string[] {
  const values: string[] = []
  for (let i = 0; i < list.length; i += 2) {
    const given = list[i] ?? ''
    if (given.length === name.length && given.toLowerCase() === name) values.push(list[i + 1] ?? '')
  }
  return values
}

/** Returns the fields as pairs of name and value. */
export function headerPairs(list: HeaderList): [name: string, value: string][] {
  const pairs: [string, string][] = []
  for (let i = 0; i < list.length; i += 2) pairs.push([list[i] ?? '', list[i + 1] ?? ''])
  return pairs
}

/** The three date formats of RFC 9110 §5.6.7: IMF-fixdate, RFC 850 and asctime. */
const HTTP_DATE =
  /^(?:[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT|[A-Z][a-z]{5,8}, \d{2}-[A-Z][a-z]{2}-\d{2} \d{2}:\d{2}:\d{2} GMT|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}:\d{2} \d{4})$/

/**
 * Returns the milliseconds from `now` (epoch ms) until the time in a `Retry-After` header, which contains seconds or an
 * HTTP date (RFC 9110 §10.2.3). The result is never negative. Returns `null` if the header is absent or invalid. The
 * caller must limit the result, because a wrong date could otherwise stop a company's calls for days.
 */
export function parseRetryAfter(value: string | null, now: number): number | null {
  const text = value?.trim() ?? ''
  // A number of seconds is recognized first, because `Date.parse` would read "120" as a year.
  if (/^\d+$/.test(text)) return Math.min(Number(text) * 1_000, Number.MAX_SAFE_INTEGER)
  if (!HTTP_DATE.test(text)) return null
  // The asctime format contains no time zone, and `Date.parse` would assume the local time zone.
  const at = Date.parse(text.endsWith('GMT') ? text : `${text} GMT`)
  return Number.isNaN(at) ? null : Math.max(0, at - now)
}
