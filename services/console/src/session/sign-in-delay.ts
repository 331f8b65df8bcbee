const MAX_SECONDS = 60
/** The number of failures is halved for each such time without a failure. */
const HALVED_AFTER_MS = 300_000
/**
 * The maximum number of names and places whose failures are counted. A further one replaces the oldest. About ten
 * passwords are checked in a second, so a client needs much longer to replace an entry than its delay lasts.
 */
const MAX_ENTRIES = 10_000

/**
 * Delays password checks after failures: 1 s after the first, then 2, 4, 8 … up to 60 s. A delay belongs to a name and a
 * place, which is the network of the client, or a browser in which the person has signed in before. Therefore failures
 * with other names, or from other places, cause no delay.
 */
export interface SignInDelay {
  /** Returns the seconds after which a check for this name is allowed from this place; 0 if it is allowed now. */
  secondsUntil(name: string, place: string): number
  failed(name: string, place: string): void
  succeeded(name: string, place: string): void
}

interface Failures {
  readonly count: number
  readonly lastAt: number
}

/** `now` is a clock in milliseconds. */
export function createSignInDelay(now: () => number): SignInDelay {
  const failures = new Map<string, Failures>()
  const keyOf = (name: string, place: string): string => JSON.stringify([name, place])
  const delayMs = (count: number): number => Math.min(MAX_SECONDS, 2 ** (count - 1)) * 1_000

  return {
    secondsUntil(name, place) {
      const known = failures.get(keyOf(name, place))
      if (known === undefined) return 0
      return Math.max(0, Math.ceil((known.lastAt + delayMs(known.count) - now()) / 1_000))
    },
    failed(name, place) {
      const key = keyOf(name, place)
      const { count, lastAt } = failures.get(key) ?? { count: 0, lastAt: now() }
      const halvings = Math.floor((now() - lastAt) / HALVED_AFTER_MS)
      failures.delete(key)
      failures.set(key, { count: Math.floor(count / 2 ** halvings) + 1, lastAt: now() })
      const [oldest] = failures.keys()
      if (failures.size > MAX_ENTRIES && oldest !== undefined) failures.delete(oldest)
    },
    succeeded(name, place) {
      failures.delete(keyOf(name, place))
    },
  }
}
