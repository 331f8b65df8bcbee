/** Helpers for the results of checks. */
import type { CheckResult } from '@integration-host/shared/observability/checks'

/** Returns the results of the checks that have one. */
export const resultsOf = (
  ...given: readonly (CheckResult | readonly CheckResult[] | false | null)[]
): CheckResult[] => given.flatMap((result) => result || [])

/** Returns the first texts, and `…` if there are more. */
export const firstOf = (texts: readonly string[], most: number, separator = ', '): string =>
  [...texts.slice(0, most), ...(texts.length > most ? ['…'] : [])].join(separator)

/** Returns each distinct text with the number of its occurrences, the most frequent text first. */
export function mostFrequent(
  texts: readonly string[],
): readonly (readonly [text: string, count: number])[] {
  const counts = new Map<string, number>()
  for (const text of texts) counts.set(text, (counts.get(text) ?? 0) + 1)
  return [...counts].toSorted(([, a], [, b]) => b - a)
}
