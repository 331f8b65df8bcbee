import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { digestOf } from '@integration-host/shared/access/key-list'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { createMemoryUsageStore, type UsageStore } from '../usage/usage.ts'
import { type Fixture, startFixture, startGateway } from '../../test-support/harness.ts'

let fixture: Fixture
let usage: UsageStore
beforeEach(async () => {
  fixture = await startFixture()
  usage = createMemoryUsageStore()
})
afterEach(() => fixture.opened.disposeAsync())

const gateway = (settings: Readonly<Record<string, string>> = {}) =>
  startGateway(fixture.upstream.url, fixture.tokens.url, { usage, settings })

const MONTH = new Date().toISOString().slice(0, 7)

describe('the calls that the gateway counts', () => {
  it.each(['on', 'off'])(
    'with FAST_PATH=%s, the gateway counts only calls with a successful response, by company and kind',
    async (fastPath) => {
      const statuses = [200, 503, 200, 404, 201]
      fixture.upstream.handle = (request, response) => {
        request.resume()
        response.statusCode = statuses.shift() ?? 200
        response.end('{}')
      }
      const started = await gateway({ FAST_PATH: fastPath })
      // The gateway repeats the call after the 503 response, but not after the 404 response.
      for (const path of ['1/query?query=x', '1/invoice/7', '1/invoice/8'])
        await (await started.call(`/v3/company/${path}`)).text()
      const post = { method: 'POST', body: '{}' }
      await (await started.call('/v3/company/2/invoice', post)).text()
      await (await started.call('/v3/company/2/batch', post)).text()
      await (await started.call('/v3/company/9/invoice/1')).text()
      await started[Symbol.asyncDispose]()
      expect(await usage.find(MONTH, '1')).toEqual({ query: 1, read: 1 })
      expect(await usage.find(MONTH, '2')).toEqual({ core: 1, batch: 1 })
      expect(await usage.find(MONTH, '9')).toEqual({})
    },
  )
})

describe('the gateway: GET /usage', () => {
  beforeEach(async () => {
    await usage.add(MONTH, [
      { realm: '1', calls: { core: 5, query: 2 } },
      { realm: '2', calls: { cdc: 1 } },
      { realm: '3', calls: { report: 4 } },
    ])
  })

  it('GET /usage lists the calls of this month by company, and the budget', async () => {
    await using started = await gateway({ MONTHLY_BUDGET: '100' })
    expect(await (await started.call('/usage?limit=2')).json()).toEqual({
      Month: MONTH,
      Budget: 100,
      Total: { Calls: { core: 5, query: 2, cdc: 1, report: 4 }, Metered: 7 },
      items: [
        { Realm: '1', Calls: { core: 5, query: 2 }, Metered: 2 },
        { Realm: '2', Calls: { cdc: 1 }, Metered: 1 },
      ],
      next_cursor: '2',
    })
    expect(await (await started.call('/usage?cursor=2')).json()).toMatchObject({
      items: [{ Realm: '3' }],
      next_cursor: null,
    })
    expect(await (await started.call('/usage?realm=2')).json()).toMatchObject({
      items: [{ Realm: '2', Metered: 1 }],
    })
    expect(await (await started.call('/usage?month=2026-01')).json()).toMatchObject({
      Month: '2026-01',
      Total: { Calls: {}, Metered: 0 },
      items: [],
    })
  })

  it('the gateway exports the metered calls of this month and the budget as metrics', async () => {
    await using started = await gateway({ MONTHLY_BUDGET: '100' })
    const text = await (await started.call('/metrics')).text()
    expect(text).toContain('gateway_monthly_budget{service="accounting-gateway"} 100\n')
    expect(text).toContain('gateway_metered_calls_this_month{service="accounting-gateway"} 7\n')
  })

  it.each([
    'month=2026-13',
    'month=now',
    'month=9999-01',
    'realm=a%2Fb',
    'limit=0',
    'limit=1001',
    'realms=1',
  ])('GET /usage rejects a request with %s', async (query) => {
    await using started = await gateway()
    const response = await started.call(`/usage?${query}`)
    expect([response.status, await response.json()]).toMatchObject([
      400,
      { code: 'invalid_request' },
    ])
  })

  it('GET /usage with a key for one company returns only that company and no total', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'usage-keys-'))
    try {
      const key = 'k'.repeat(48)
      const path = join(folder, 'keys.json')
      await writeFile(
        path,
        JSON.stringify([
          { id: 'erp', sha256: digestOf(key), scopes: ['gateway:read'], realms: ['2'] },
        ]),
      )
      await using started = await gateway({ SERVICE_KEYS_FILE: path })
      const headers = { Authorization: `Bearer ${key}` }
      expect(await (await started.call('/usage?limit=1', { headers })).json()).toMatchObject({
        Total: null,
        items: [{ Realm: '2' }],
        next_cursor: null,
      })
      expect((await started.call('/usage?realm=1', { headers })).status).toBe(403)
    } finally {
      await rm(folder, { recursive: true })
    }
  })
})
