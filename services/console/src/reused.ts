/**
 * Returns a function that calls `read`, and returns the same result to all calls until `ms` after it was read. A failure
 * is not reused. `now` returns milliseconds.
 */
export function reused<Parameters extends readonly unknown[], Result>(
  ms: number,
  read: (...parameters: Parameters) => Promise<Result>,
  now: () => number = Date.now,
): (...parameters: Parameters) => Promise<Result> {
  let latest: Promise<Result> | null = null
  let until = Infinity
  return (...parameters) => {
    if (latest !== null && now() < until) return latest
    until = Infinity
    latest = read(...parameters)
    latest.then(
      () => (until = now() + ms),
      () => (until = -Infinity),
    )
    return latest
  }
}
