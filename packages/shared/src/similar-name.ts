/** Returns the known name that a person probably meant; `undefined` if none is similar. */
export const similarName = (given: string, known: Iterable<string>): string | undefined =>
  [...known].find((word) => isMistyped(given, word))

/** Whether a word was probably meant: one is the beginning of the other, or they differ in two characters at most. */
function isMistyped(given: string, word: string): boolean {
  if (given.length < 3 || given.length > 30) return false
  if (word.startsWith(given) || given.startsWith(word)) return true
  // The Levenshtein distance, row by row.
  let row = Array.from({ length: word.length + 1 }, (_, n) => n)
  for (const [index, character] of Array.from(given).entries()) {
    const above = row
    row = [index + 1]
    for (let n = 1; n <= word.length; n += 1)
      row[n] = Math.min(
        (above[n] ?? 0) + 1,
        (row[n - 1] ?? 0) + 1,
        (above[n - 1] ?? 0) + Number(word[n - 1] !== character),
      )
  }
  return (row[word.length] ?? 0) <= 2
}

const MAX_NAMES = 10

/** Ends the sentence "x has no y …" with the name that was probably meant, or with the first ten names. */
export function namesInstead(given: string, known: Iterable<string>, what: string): string {
  const meant = similarName(given, known)
  if (meant !== undefined) return `: did you mean ${meant}?`
  const all = [...known]
  const further = all.length > MAX_NAMES ? ` and ${all.length - MAX_NAMES} more` : ''
  return all.length === 0
    ? `: it has no ${what}`
    : `: its ${what} are ${all.slice(0, MAX_NAMES).join(', ')}${further}`
}
