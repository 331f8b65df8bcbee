import { randomOf } from '@integration-host/shared/test-support/random'
import { Secret } from '@integration-host/shared/secrets/secret'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Client, createClient } from '../cluster/client.ts'
import { connectCompanies } from '../cluster/companies.ts'
import { runRound } from '../cluster/round.ts'
import { isKept, type Round } from '../cluster/verdict.ts'
import { startSystem, type System } from '../support/system.ts'

describe('a round of the cluster test against a running system', () => {
  let system: System
  let client: Client
  const { signal } = new AbortController()
  beforeAll(async () => {
    system = await startSystem()
    const at = {
      demoApi: system.url('demo-api'),
      tokenService: system.url('token-service'),
      accountingGateway: system.url('accounting-gateway'),
      coordinator: system.url('coordinator'),
      sandboxProvider: system.url('sandbox-provider'),
      serviceKey: new Secret(system.serviceKey),
    }
    client = createClient({ at, signal, deadlineMs: 15_000 })
    const settings = { rotation: 'always', graceSeconds: 0, accessTokenSeconds: 10 }
    expect(await client.changeSandbox(settings)).toBe(true)
  })
  afterAll(() => system[Symbol.asyncDispose]())

  /** Runs a round of a few seconds with three companies. */
  async function run(name: string, disturb: () => Promise<unknown>): Promise<Round> {
    const realms = [0, 1, 2].map((n) => `${name}-${n}`)
    const companies = await connectCompanies(client, realms, () => false)
    const now = (): number => performance.now()
    return runRound(
      { client, random: randomOf(7), now, signal },
      {
        name,
        companies,
        rates: { orders: 5, reads: 20, connects: 0 },
        prefix: name,
        warmUpMs: 500,
        recoveryMs: 60_000,
        disturb: async () => void (await disturb()),
      },
    )
  }

  it('the round is kept without a fault', async () => {
    const round = await run('calm', async () => {})
    expect(round).toMatchObject({ lost: [], doubled: [], stuck: [], lockedOut: [], error: null })
    expect(round.orders).toBeGreaterThan(0)
    expect(isKept(round)).toBe(true)
  })

  it('the round reports a fault that could not be caused, and still checks the records', async () => {
    const round = await run('failed', () => Promise.reject(new Error('no such container')))
    expect(round).toMatchObject({ error: 'no such container', lost: [], stuck: [], lockedOut: [] })
    expect(isKept(round)).toBe(false)
  })

  it('the round reports the companies that are locked out after the provider has deleted all grants', async () => {
    const url = `${system.url('sandbox-provider')}/sandbox/reset`
    const round = await run('reset', () =>
      fetch(url, { method: 'POST', headers: { 'Content-Type': 'application/json' } }),
    )
    expect(round).toMatchObject({ lost: [], stuck: [], error: null })
    expect(round.lockedOut).toEqual(['reset-0', 'reset-1', 'reset-2'])
  })
})
