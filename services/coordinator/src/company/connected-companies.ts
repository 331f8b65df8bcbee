import type { Clock } from '@integration-host/shared/process/clock'

/** The port to token-service's list of connected companies. */
export interface ConnectedCompanies {
  /**
   * Returns one page of the companies with a usable credential, in the order of the credential names. The page leaves
   * out companies that must be connected again. `after` is `next` of the previous page, or `null` for the first page. A
   * page may have no realms although `next` is not `null`.
   *
   * @throws {IntegrationError} `token_service_unavailable` if token-service cannot be reached, or does not accept the
   *   key of this service. The same call may succeed later.
   */
  page(after: string | null): Promise<CompanyPage>
  /**
   * Returns whether a credential of this realm exists. The credential may be unusable, so that the company must be
   * connected again.
   *
   * @throws {IntegrationError} `token_service_unavailable`
   */
  isConnected(realm: string): Promise<boolean>
}

export interface CompanyPage {
  readonly realms: readonly string[]
  /** The value of `after` for the next page; `null` if there is none. */
  readonly next: string | null
}

export interface KnownCompaniesDeps {
  readonly isConnected: ConnectedCompanies['isConnected']
  readonly now: Clock['now']
  /** How long a company counts as connected after token-service has confirmed it, in ms. */
  readonly connectedMs?: number
  /** How long a company counts as unknown, in ms: only briefly, because it can be connected at any moment. */
  readonly unknownMs?: number
  readonly maxEntries?: number
}

interface Entry {
  readonly isConnected: boolean
  readonly until: number
}

/** Remembers the results of `isConnected`. Calls at the same time share one request; a failed one is not remembered. */
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
