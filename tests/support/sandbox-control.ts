import { expect } from 'vitest'
import type { System } from './system.ts'

/** What the provider did with the refresh calls of one realm since its start. */
export interface RefreshCalls {
  readonly granted: number
  readonly refused: number
  /** With a token that was rotated before, whether it was still taken or not. */
  readonly reused: number
  readonly atOnce: number
}

/** The knobs and counters of the sandbox, and its accounting API as a resource server. */
export function sandboxOf(system: System) {
  const url = system.url('sandbox-provider')
  const control = async (method: string, path: string, body?: unknown): Promise<unknown> => {
    const answer = await fetch(`${url}/sandbox/${path}`, {
      method,
      headers: { 'Content-Type': 'application/json' },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
    expect(answer.ok).toBe(true)
    return answer.json()
  }
  const allCalls = async (): Promise<Map<string, RefreshCalls>> => {
    const { realms } = (await control('GET', 'counters')) as {
      realms: Record<string, Record<string, number>>
    }
    return new Map(
      Object.entries(realms).map(([realm, seen]) => [
        realm,
        {
          granted: seen['refreshes'] ?? 0,
          refused: seen['refreshesRefused'] ?? 0,
          reused: seen['tokenReuses'] ?? 0,
          atOnce: seen['maxConcurrentRefreshes'] ?? 0,
        },
      ]),
    )
  }
  return {
    set: (settings: object) => control('PUT', 'settings', settings),
    expire: (realm: string) => control('POST', `realms/${realm}/expire`),
    /** The next token call takes effect at once and is answered `ms` later. */
    holdNextAnswer: (ms: number) => control('POST', 'faults', { target: 'token', latencyMs: ms }),
    allCalls,
    calls: async (realm: string): Promise<RefreshCalls> =>
      (await allCalls()).get(realm) ?? { granted: 0, refused: 0, reused: 0, atOnce: 0 },
    async accepts(realm: string, token = ''): Promise<boolean> {
      const query = encodeURIComponent('select * from CompanyInfo')
      const answer = await fetch(`${url}/v3/company/${realm}/query?query=${query}`, {
        headers: { Authorization: `Bearer ${token}` },
      })
      await answer.body?.cancel()
      return answer.status === 200
    },
  }
}
