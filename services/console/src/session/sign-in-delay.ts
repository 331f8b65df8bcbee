const MAX_SECONDS = 60
/**
 * The maximum number of names whose failures are counted. The sum of the failures of all names is always counted.
 */
const MAX_NAMES = 1_000

/**
 * Delays password checks after failures: 1 s after the first, then 2, 4, 8 … up to 60 s, for each name and for all
 * names together. The delay ends, so no name is locked permanently.
 */
export interface SignInDelay {
  /** Returns the seconds after which a check for this name is allowed; 0 if it is allowed now. */
  secondsUntil(name: string): number
  failed(name: string): void
  succeeded(name: string): void
}

interface Failures {
  readonly count: number
  readonly nextAt: number
}

/**
 * The number of consecutive failures of all names together that cause no delay, because persons mistype passwords.
 */
const FREE_IN_ALL = 10

/** `now` is a clock in milliseconds. */
export function createSignInDelay(now: () => number): SignInDelay {
  const byName = new Map<string, Failures>()
  let inAll: Failures = { count: 0, nextAt: 0 }

  const after = (count: number): Failures => ({
    count,
    nextAt: count <= 0 ? 0 : now() + Math.min(MAX_SECONDS, 2 ** Math.min(count - 1, 10)) * 1_000,
  })
  return {
    secondsUntil(name) {
      const nextAt = Math.max(byName.get(name)?.nextAt ?? 0, inAll.nextAt)
      return Math.max(0, Math.ceil((nextAt - now()) / 1_000))
    },
    failed(name) {
      const count = (byName.get(name)?.count ?? 0) + 1
      byName.delete(name)
      byName.set(name, after(count))
      const [oldest] = byName.keys()
      if (byName.size > MAX_NAMES && oldest !== undefined) byName.delete(oldest)
      inAll = { ...after(inAll.count + 1 - FREE_IN_ALL), count: inAll.count + 1 }
    },
    succeeded(name) {
      byName.delete(name)
      inAll = { count: 0, nextAt: 0 }
    },
  }
}
