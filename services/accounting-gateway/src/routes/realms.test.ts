import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { digestOf } from '@integration-host/shared/access/key-list'
import type {
  RealmActivityList,
  RealmCalls,
} from '@integration-host/shared/contracts/realm-activity'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type Fixture, startFixture, startGateway } from '../../test-support/harness.ts'

let fixture: Fixture
beforeEach(async () => {
  fixture = await startFixture()
})
afterEach(() => fixture.opened.disposeAsync())

const gateway = (settings: Readonly<Record<string, string>> = {}) =>
  startGateway(fixture.upstream.url, fixture.tokens.url, { settings })

describe('the gateway: GET /realms', () => {
  it.each(['on', 'off'])(
    "with FAST_PATH=%s, the gateway lists failed calls of a company with the provider's trace id, code and message, but without query and details",
    async (fastPath) => {
      fixture.upstream.handle = (request, response) => {
        request.resume()
        response.statusCode = request.url?.includes('bad') === true ? 400 : 200
        response.setHeader('intuit_tid', '1-65a')
        const error = { code: '6240', Message: 'Duplicate Name Exists Error', Detail: 'secret' }
        response.end(JSON.stringify({ Fault: { Error: [error] } }))
      }
      await using started = await gateway({ FAST_PATH: fastPath })
      await (await started.call('/v3/company/1/invoice/good')).text()
      await (await started.call('/v3/company/1/bad?query=secret')).text()
      const one = (await (await started.call('/realms/1')).json()) as RealmCalls
      expect(one).toMatchObject({
        Realm: '1',
        HeldUntil: null,
        LastMinute: 2,
        Failed: 1,
        Calls: [
          {
            Method: 'GET',
            Path: '/v3/company/1/bad',
            Status: 400,
            Code: null,
            ProviderError: '6240 Duplicate Name Exists Error',
            Attempts: 1,
            IntuitTid: '1-65a',
          },
        ],
      })
      expect(JSON.stringify(one)).not.toContain('secret')
      const list = (await (await started.call('/realms')).json()) as RealmActivityList
      expect(list.items.map(({ Realm, Failed }) => [Realm, Failed])).toEqual([['1', 1]])
      expect(list.Limits.PerMinute).toBeGreaterThan(0)
    },
  )

  it('GET /realms lists a company in a cool-down after a 429 response, with the end of the cool-down', async () => {
    fixture.upstream.handle = (request, response) => {
      request.resume()
      response.writeHead(429, { 'Retry-After': '3600' }).end('{}')
    }
    await using started = await gateway()
    await (await started.call('/v3/company/1/invoice/7')).text()
    const { items } = (await (await started.call('/realms')).json()) as RealmActivityList
    expect(items[0]?.Realm).toBe('1')
    expect(Date.parse(items[0]?.HeldUntil ?? '')).toBeGreaterThan(Date.now() + 3_000_000)
  })

  it('GET /realms requires the scope audit:read, and lists only the companies that the key may use', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'realms-'))
    try {
      const [bound, other] = ['a'.repeat(40), 'b'.repeat(40)]
      const file = join(folder, 'keys.json')
      const keys = [
        {
          id: 'bound',
          sha256: digestOf(bound),
          scopes: ['audit:read'],
          realms: ['2'],
          processes: [],
        },
        {
          id: 'other',
          sha256: digestOf(other),
          scopes: ['gateway:read'],
          realms: ['*'],
          processes: [],
        },
      ]
      await writeFile(file, JSON.stringify(keys))
      await using started = await gateway({ SERVICE_KEYS_FILE: file })
      for (const realm of ['1', '2'])
        await (await started.call(`/v3/company/${realm}/invoice/7`)).text()
      const call = (path: string, key: string) =>
        started.call(path, { headers: { Authorization: `Bearer ${key}` } })
      const { items } = (await (await call('/realms', bound)).json()) as RealmActivityList
      expect(items.map(({ Realm }) => Realm)).toEqual(['2'])
      expect((await call('/realms/1', bound)).status).toBe(403)
      expect((await call('/realms', other)).status).toBe(403)
    } finally {
      await rm(folder, { recursive: true })
    }
  })
})
