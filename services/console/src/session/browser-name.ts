/**
 * The browsers in the order of the search. The order matters, because the User-Agent of Edge also contains `Chrome`,
 * and the User-Agent of Chrome contains `Safari`.
 */
const PROGRAMS = [
  ['Edg', 'Edge'],
  ['OPR', 'Opera'],
  ['Firefox', 'Firefox'],
  ['Chrome', 'Chrome'],
  ['Safari', 'Safari'],
] as const
const SYSTEMS = [
  ['iPhone', 'iPhone'],
  ['iPad', 'iPad'],
  ['Android', 'Android'],
  ['Windows', 'Windows'],
  ['Mac OS', 'macOS'],
  ['Linux', 'Linux'],
] as const

/** Returns a name for a header `User-Agent`, such as `Firefox on Linux`, by which a person recognizes a browser. */
export function browserName(userAgent: string | undefined): string {
  const found = (names: readonly (readonly [string, string])[]): string | undefined =>
    names.find(([part]) => userAgent?.includes(part))?.[1]
  const system = found(SYSTEMS)
  return `${found(PROGRAMS) ?? 'A browser'}${system === undefined ? '' : ` on ${system}`}`
}
