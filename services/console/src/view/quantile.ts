/** A bucket of a histogram: the number of observations that were at most `le`. */
export interface Bucket {
  readonly le: number
  readonly count: number
}

/**
 * Returns a quantile of the observations in cumulative buckets, as Prometheus' `histogram_quantile` does: the
 * observations are assumed to be spread evenly in their bucket. Returns `null` if there are no observations.
 */
export function quantileOf(q: number, buckets: readonly Bucket[]): number | null {
  const sorted = buckets.toSorted((one, other) => one.le - other.le)
  const total = sorted.at(-1)?.count ?? 0
  if (total <= 0) return null
  const rank = q * total
  const index = sorted.findIndex(({ count }) => count >= rank)
  const bucket = sorted[index]
  if (bucket === undefined) return null
  const before = sorted[index - 1] ?? { le: 0, count: 0 }
  // For observations beyond the largest bound, only this bound is known.
  if (bucket.le === Infinity) return before.le
  const inBucket = bucket.count - before.count
  if (inBucket <= 0) return bucket.le
  return before.le + (bucket.le - before.le) * ((rank - before.count) / inBucket)
}
