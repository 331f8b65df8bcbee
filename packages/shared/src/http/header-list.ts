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
