/** Returns the quantile `q` of the values, where `q` is between 0 and 1. */
export const quantile = (values: readonly number[], q: number): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length * q)] ?? Number.NaN

export const median = (values: readonly number[]): number => quantile(values, 0.5)
