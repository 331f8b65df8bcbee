/** Returns the quantile `q` of the values, where `q` is between 0 and 1. */
export const quantile = (values: readonly number[], q: number): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length * q)] ?? Number.NaN

export const median = (values: readonly number[]): number => quantile(values, 0.5)

/**
 * Returns the narrowest interval of measured values that contains the true median with a probability of at least 95 %
 * (the order statistics of the sign test); of nine values, the second lowest and the second highest. Five values or
 * fewer are too few: their interval is the whole range.
 */
export function medianInterval(values: readonly number[]): readonly [low: number, high: number] {
  const sorted = values.toSorted((a, b) => a - b)
  const count = sorted.length
  let rank = 0
  let isOutside = 2 * 2 ** -count // the probability that the median is below the value `rank`, or above its counterpart
  for (let ways = count; rank < count / 2; ways *= (count - rank) / (rank + 1)) {
    isOutside += 2 * ways * 2 ** -count
    if (isOutside > 0.05) break
    rank += 1
  }
  return [sorted[rank] ?? Number.NaN, sorted[count - 1 - rank] ?? Number.NaN]
}
