/**
 * Headers as they travel: flat (`name, value, name, value`), as Node's raw headers are. Order, spelling and
 * repetition stay as they came.
 */
export type HeaderList = readonly string[]

/** The header's value, null when it is absent; the first of several. `name` in lower case. */
export function headerValue(list: HeaderList, name: string): string | null {
  for (let i = 0; i < list.length; i += 2) {
    const given = list[i] ?? ''
    // Most names are of another length, so most cost one comparison.
    if (given.length === name.length && given.toLowerCase() === name) return list[i + 1] ?? ''
  }
  return null
}

/** Name and value as pairs. */
export function headerPairs(list: HeaderList): [name: string, value: string][] {
  const pairs: [string, string][] = []
  for (let i = 0; i < list.length; i += 2) pairs.push([list[i] ?? '', list[i + 1] ?? ''])
  return pairs
}
