import { expect } from 'vitest'
import type { System } from '../system.ts'

/** How the provider responded to the refresh calls of one realm since its start. */
export interface RefreshCalls {
  readonly granted: number
  readonly rejected: number
  /** Calls with a token that had been rotated before, accepted or not. */
  readonly reused: number
  readonly maxConcurrent: number
}

/** The control API of the sandbox provider, and its accounting API as a resource server. */
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
    /** Ends the validity of the realm's access token. */
    expire: (realm: string) => control('POST', `realms/${realm}/expire`),
    /** Revokes the realm's grant, as the company's owner can. */
    revoke: (realm: string) => control('POST', `realms/${realm}/revoke`),
    /** Delays the response of the next token call by `ms`; its effect happens at once. */
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
