import type { Clock } from '@integration-host/shared/process/clock'
import type { ConnectedCompanies } from './connected-companies.ts'

export interface KnownCompaniesDeps {
  readonly isConnected: ConnectedCompanies['isConnected']
  readonly now: Clock['now']
  /** How long a company counts as connected after token-service has confirmed it, in ms. */
  readonly connectedMs?: number
  /**
   * How long a company counts as unknown after token-service has not found its credential, in ms. The time is short,
   * because the company can be connected at any moment.
   */
  readonly unknownMs?: number
  readonly maxEntries?: number
}

interface Entry {
  readonly isConnected: boolean
  readonly until: number
}

/**
 * Returns a function that keeps the results of `isConnected` for a limited time. Calls for the same company at the same
 * time share one request. The result of a failed request is not kept.
 */
export function createKnownCompanies({
  isConnected,
  now,
  connectedMs = 60_000,
  unknownMs = 5_000,
  maxEntries = 10_000,
}: KnownCompaniesDeps): ConnectedCompanies['isConnected'] {
  /** The results in the order of their insertion, so that the first entry is the oldest. */
  const entries = new Map<string, Entry>()
  const requests = new Map<string, Promise<boolean>>()

  async function request(realm: string): Promise<boolean> {
    const found = await isConnected(realm)
    entries.delete(realm)
    const [oldest] = entries.keys()
    if (entries.size >= maxEntries && oldest !== undefined) entries.delete(oldest)
    entries.set(realm, { isConnected: found, until: now() + (found ? connectedMs : unknownMs) })
    return found
  }

  return async (realm) => {
    const known = entries.get(realm)
    if (known !== undefined && known.until > now()) return known.isConnected
    const pending = requests.get(realm)
    if (pending !== undefined) return pending
    const requested = request(realm).finally(() => requests.delete(realm))
    requests.set(realm, requested)
    return requested
  }
}
