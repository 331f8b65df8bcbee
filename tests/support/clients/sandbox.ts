import { expect } from 'vitest'
import type { System } from '../system.ts'

/** How many refresh calls of one realm the provider has received since its start, for each kind of response. */
export interface RefreshCalls {
  readonly granted: number
  readonly rejected: number
  /**
   * The number of calls with a refresh token that had already been rotated. Accepted calls and rejected calls are
   * counted.
   */
  readonly reused: number
  readonly maxConcurrent: number
}

/** Returns a client of the sandbox provider's control API and of its accounting API. */
export function sandboxClient(system: System) {
  const url = system.url('sandbox-provider')
  const control = async (method: string, path: string, body?: unknown): Promise<unknown> => {
    const response = await fetch(`${url}/sandbox/${path}`, {
      method,
      headers: { 'Content-Type': 'application/json' },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
    const text = await response.text()
    expect(response.ok, text).toBe(true)
    return text === '' ? null : JSON.parse(text)
  }
  const counters = async (): Promise<Record<string, Record<string, number>>> =>
    ((await control('GET', 'counters')) as { realms: Record<string, Record<string, number>> })
      .realms
  const allCalls = async (): Promise<Map<string, RefreshCalls>> =>
    new Map(
      Object.entries(await counters()).map(([realm, counts]) => [
        realm,
        {
          granted: counts['refreshes'] ?? 0,
          rejected: counts['refreshesRefused'] ?? 0,
          reused: counts['tokenReuses'] ?? 0,
          maxConcurrent: counts['maxConcurrentRefreshes'] ?? 0,
        },
      ]),
    )
  const addFault = (fault: object) => control('POST', 'faults', fault)
  return {
    set: (settings: object) => control('PUT', 'settings', settings),
    reset: () => control('POST', 'reset'),
    addFault,
    clearFaults: () => control('DELETE', 'faults'),
    /** Makes the realm's access token invalid. */
    expire: (realm: string) => control('POST', `realms/${realm}/expire`),
    /** Revokes the realm's grant, as the owner of the company can do at the provider. */
    revoke: (realm: string) => control('POST', `realms/${realm}/revoke`),
    /**
     * Disconnects the company as its owner does. Resolves with the address to which the owner's browser is redirected.
     */
    disconnect: async (realm: string): Promise<string> =>
      ((await control('POST', `companies/${realm}/disconnect`)) as { browserGoesTo: string })
        .browserGoesTo,
    /** Delays the response to the next token call by `ms`. The call itself takes effect immediately. */
    delayNextTokenResponse: (ms: number) => addFault({ target: 'token', latencyMs: ms }),
    allCalls,
    calls: async (realm: string): Promise<RefreshCalls> =>
      (await allCalls()).get(realm) ?? { granted: 0, rejected: 0, reused: 0, maxConcurrent: 0 },
    entitiesCreated: async (realm: string): Promise<number> =>
      (await counters())[realm]?.['entitiesCreated'] ?? 0,
    async accepts(realm: string, token = ''): Promise<boolean> {
      const query = encodeURIComponent('select * from CompanyInfo')
      const response = await fetch(`${url}/v3/company/${realm}/query?query=${query}`, {
        headers: { Authorization: `Bearer ${token}` },
      })
      await response.body?.cancel()
      return response.status === 200
    },
  }
}
