/**
 * Checks the objects that a test passes to the test host. Otherwise a misspelt member would have no effect.
 */

/**
 * @param what names the object in the message
 * @throws {TypeError} `value` is not an object, or has a member that is not in `known`.
 */
export function requireKnownMembers(what: string, value: unknown, known: readonly string[]): void {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new TypeError(`${what} must be an object`)
  const unknown = Object.keys(value).find((name) => !known.includes(name))
  if (unknown !== undefined)
    throw new TypeError(`${what} has no member '${unknown}'; the members are: ${known.join(', ')}`)
}

/** @throws {TypeError} `value` is not one of `known`. */
export function requireOneOf(what: string, value: unknown, known: readonly string[]): void {
  if (!known.some((each) => each === value))
    throw new TypeError(
      `${what} is ${JSON.stringify(value)}; it must be one of: ${known.join(', ')}`,
    )
}
