/** Returns each distinct text with the number of its occurrences, the most frequent text first. */
export function mostFrequent(
  texts: readonly string[],
): readonly (readonly [text: string, count: number])[] {
  const counts = new Map<string, number>()
  for (const text of texts) counts.set(text, (counts.get(text) ?? 0) + 1)
  return [...counts].toSorted(([, a], [, b]) => b - a)
}
