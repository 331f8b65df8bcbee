import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connectCompany } from '../support/story-steps.ts'
import { personalities, startSystem, type System } from '../support/system.ts'

const REALM = '9341453908059889'

describe.each(personalities)('a POST whose response is lost, at the provider %s', (personality) => {
  let system: System

  beforeAll(async () => {
    system = await startSystem(['sandbox-provider', 'token-service', 'accounting-gateway'], {
      personality,
    })
    await connectCompany(system, REALM)
  })
  afterAll(() => system[Symbol.asyncDispose]())

  const sandbox = (path: string, init?: RequestInit): Promise<Response> =>
    fetch(`${system.url('sandbox-provider')}/sandbox/${path}`, {
      headers: { 'Content-Type': 'application/json' },
      ...init,
    })

  it.each([
    ['lost', [{ drop: 'after' }]],
    ['lost, and the next one a 502', [{ drop: 'after' }, { status: 502 }]],
  ])('creates its entity once if it is %s', async (name, faults) => {
    for (const fault of faults) {
      const body = JSON.stringify({ target: 'api', calls: 1, ...fault })
      expect((await sandbox('faults', { method: 'POST', body })).status).toBe(201)
    }
    const before = await created()
    const response = await system.call(
      `${system.url('accounting-gateway')}/v3/company/${REALM}/customer?minorversion=75`,
      {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', Accept: 'application/json' },
        body: JSON.stringify({ DisplayName: `${name} ${personality}` }),
      },
    )
    await response.text()
    // Intuit recognises the requestid. Nothing protects a POST to a provider of which nothing is known.
    expect(response.status).toBe(personality === 'intuit' ? 200 : 502)
    expect(response.headers.has('X-RequestId')).toBe(personality === 'intuit')
    expect(await created()).toBe(before + 1)
    await sandbox('faults', { method: 'DELETE' })
  })

  async function created(): Promise<number> {
    const { realms } = (await (await sandbox('counters')).json()) as {
      realms: Record<string, { entitiesCreated: number }>
    }
    return realms[REALM]?.entitiesCreated ?? 0
  }
})
