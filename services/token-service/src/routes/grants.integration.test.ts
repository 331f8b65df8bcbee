import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { digestOf } from '@integration-host/shared/access/key-list'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import {
  GrantLine,
  type GrantReport,
  type GrantResult,
} from '@integration-host/shared/contracts/custody'
import { IntegrationError } from '@integration-host/shared/errors'
import { eventually } from '@integration-host/shared/test-support/eventually'
import {
  type ScriptedProvider,
  startScriptedProvider,
} from '../../test-support/scripted-provider.ts'
import {
  json,
  dropKeys,
  openTestRedis,
  silent,
  type ServiceOptions,
  startTestService,
  testKeys,
  type TestRedis,
  type TestService,
  usable,
} from '../../test-support/service-fixture.ts'
import { openRescueFolder } from '../adapters/file/rescue-folder.ts'
import type { Failpoint } from '../credential/refresh.ts'

let provider: ScriptedProvider
let redis: TestRedis
let service: TestService
let failpoint: (point: Failpoint, name: string) => Promise<void> | void
const keys = testKeys()

const start = (options: Partial<ServiceOptions> = {}): Promise<TestService> =>
  startTestService({
    provider,
    keys,
    store: redis.store,
    connection: redis.connection,
    authorizations: redis.authorizations,
    failpoint: (point, name) => failpoint(point, name),
    ...options,
  })

beforeEach(async () => {
  failpoint = () => {}
  provider = await startScriptedProvider()
  redis = await openTestRedis({ keys })
  await usable(redis)
  service = await start()
})
afterEach(async () => {
  await service[Symbol.asyncDispose]()
  await redis[Symbol.asyncDispose]()
  await provider[Symbol.asyncDispose]()
  await dropKeys(redis.prefix)
})

/**
 * Authorizes a company for another program, and resolves with the refresh token that this program
 * gets.
 */
async function foreignToken(): Promise<string> {
  const basic = Buffer.from('test-client:test-client-secret-0123456789').toString('base64')
  const response = await fetch(`${provider.url}/token`, {
    method: 'POST',
    headers: { Authorization: `Basic ${basic}` },
    body: new URLSearchParams({ grant_type: 'authorization_code', code: provider.authorize() }),
  })
  const { refresh_token } = (await response.json()) as { refresh_token: string }
  provider.requests.length = 0
  return refresh_token
}

const ndjson = (...lines: readonly (string | object)[]): RequestInit => ({
  method: 'POST',
  headers: { 'Content-Type': 'application/x-ndjson' },
  body: lines.map((line) => (typeof line === 'string' ? line : JSON.stringify(line))).join('\n'),
})
const adopt = async (...lines: readonly (string | object)[]): Promise<GrantReport> =>
  (await (await service.call('/imports/grants', ndjson(...lines))).json()) as GrantReport
async function adoptOne(line: object): Promise<GrantResult> {
  const [result] = (await adopt(line)).results
  if (result === undefined) throw new Error('there is no result')
  return result
}
const audited = async (name: string): Promise<string[]> => {
  const { items } = (await service.ask('/audit?limit=1000')).body as {
    items: { Name: string; What: string; Outcome: string }[]
  }
  return items
    .filter((entry) => entry.Name === name)
    .map(({ What, Outcome }) => `${What} ${Outcome}`)
}

describe('POST /imports/grants', () => {
  it('POST /imports/grants refreshes the grant of another program once, stores the new token pair, and issues its access token', async () => {
    const token = await foreignToken()
    const report = await adopt({ Realm: '1', RefreshToken: token })
    expect(report).toEqual({
      stored: 1,
      already_here: 0,
      refused: 0,
      unavailable: 0,
      invalid: 0,
      retry_after: 0,
      results: [{ Line: 1, Name: 'ACC-1', Outcome: 'stored', Version: 1 }],
    })
    expect(provider.requests).toHaveLength(1)
    expect((await service.ask('/credentials/ACC-1')).body).toMatchObject({
      Environment: '1',
      Status: 'active',
      Version: 1,
    })
    const refreshed = await service.ask('/credentials/ACC-1/refresh', json({}))
    expect(refreshed.status).toBe(200)
    expect(provider.requests[1]?.form.get('refresh_token')).not.toBe(token)
    await eventually(async () => expect(await audited('ACC-1')).toContain('adopted ok'))
  })

  it('POST /imports/grants accepts a JSON list, and lines with label, tags and environment', async () => {
    const names = { Label: 'Acme', Tags: { region: 'EU' }, Environment: 'other' }
    const list = [{ Realm: '1', RefreshToken: await foreignToken(), ...names }]
    const { status, body } = await service.ask('/imports/grants', json(list))
    expect([status, body['stored']]).toEqual([200, 1])
    expect((await service.ask('/credentials/ACC-1')).body).toMatchObject(names)
  })

  it('POST /imports/grants does not send the token of an already adopted grant, even after later rotations', async () => {
    const line = { Realm: '1', RefreshToken: await foreignToken() }
    await adopt(line)
    await service.ask('/credentials/ACC-1/refresh', json({}))
    provider.requests.length = 0
    expect(await adoptOne(line)).toMatchObject({
      Outcome: 'already_here',
      Version: 2,
      Reason: 'this token was adopted before',
    })
    expect(provider.requests).toHaveLength(0)
  })

  it('POST /imports/grants rejects an already adopted grant that has ended, and does not send its token', async () => {
    await service[Symbol.asyncDispose]()
    service = await start({ env: { PROVIDER_PROFILE: 'generic' } })
    const line = { Realm: '1', RefreshToken: await foreignToken() }
    await adopt(line)
    provider.revokeAll()
    await service.ask('/credentials/ACC-1/refresh', json({}))
    provider.requests.length = 0
    expect(await adoptOne(line)).toMatchObject({ Outcome: 'refused', Code: 'used_elsewhere' })
    expect(provider.requests).toHaveLength(0)
  })

  it('POST /imports/grants does not replace a usable credential, and sends no token for its company', async () => {
    await service.connect('1')
    const token = await foreignToken()
    expect(await adoptOne({ Realm: '1', RefreshToken: token })).toMatchObject({
      Outcome: 'already_here',
      Version: 1,
      Reason: 'the company is connected here',
    })
    expect(provider.requests).toHaveLength(0)
  })

  it('POST /imports/grants replaces a credential whose grant has ended, unless the provider rejects the new grant', async () => {
    await service.connect('1')
    provider.revokeAll()
    await service.ask('/credentials/ACC-1/refresh', json({}))
    const before = (await service.ask('/credentials/ACC-1')).body
    expect(before).toMatchObject({ Status: 'faulted', Version: 1 })
    const unknown = { Realm: '1', RefreshToken: 'rt-unknown-0123456789012345' }
    expect(await adoptOne(unknown)).toMatchObject({ Outcome: 'refused', Code: 'invalid_grant' })
    expect((await service.ask('/credentials/ACC-1')).body).toEqual(before)
    expect(await adoptOne({ Realm: '1', RefreshToken: await foreignToken() })).toMatchObject({
      Outcome: 'stored',
      Version: 2,
    })
    expect((await service.ask('/credentials/ACC-1')).body).toMatchObject({ Status: 'active' })
  })

  it("POST /imports/grants reports and audits the provider's error without the token, and stores nothing", async () => {
    const token = 'rt-refused-01234567890123456789'
    provider.script({
      status: 400,
      headers: { intuit_tid: 'trace-refused' },
      body: JSON.stringify({ error: 'invalid_grant', error_description: `bad token ${token}` }),
    })
    const result = await adoptOne({ Realm: '1', RefreshToken: token })
    expect(result).toMatchObject({
      Name: 'ACC-1',
      Outcome: 'refused',
      Code: 'invalid_grant',
      TraceId: 'trace-refused',
    })
    expect(JSON.stringify(result)).not.toContain(token)
    expect((await service.ask('/credentials/ACC-1')).status).toBe(404)
    await eventually(async () => expect(await audited('ACC-1')).toEqual(['adopted invalid_grant']))
  })

  it('POST /imports/grants reports the numbers of invalid lines, and adopts the grants of the valid lines', async () => {
    const token = await foreignToken()
    const secret = 'AB11xyz0123456789012345678901234567890'
    const report = await adopt(
      '\uFEFF{not json',
      '',
      { Realm: '2', RefreshToken: token },
      { Realm: 2, RefreshToken: secret },
      { RefreshToken: secret },
      { Realm: '3' },
      { Realm: secret, RefreshToken: '9341453908059889' },
      { Realm: '../4', RefreshToken: secret },
      { Realm: '5', RefreshToken: `${secret}\n` },
      { Realm: '6', RefreshToken: secret, [secret]: 1 },
      { Realm: '7', RefreshToken: 'x'.repeat(5_000) },
      { Realm: '8', RefreshToken: 'x'.repeat(20_000) },
      { Realm: '9', RefreshToken: secret, Label: 'Acme\u202e' },
      '[]',
      `\u00A0${JSON.stringify({ Realm: '10', RefreshToken: token })}`,
    )
    const invalid = report.results.filter(({ Outcome }) => Outcome === 'invalid')
    expect(invalid.map(({ Line, Reason }) => `${Line}: ${Reason}`)).toEqual([
      '1: is not JSON',
      '4: Realm: is missing or not text',
      '5: Realm: is missing or not text',
      '6: RefreshToken: is missing or not text',
      '7: RefreshToken: is too short for a refresh token',
      '8: Realm: must be 1-64 of A-Z a-z 0-9 _ -',
      '9: RefreshToken: must consist of visible ASCII characters',
      '10: has unknown members',
      '11: RefreshToken: is too long for a refresh token',
      '12: has more than 16384 bytes',
      '13: Label: must not have control characters, line separators or bidirectional overrides',
      '14: is not a JSON object',
      '15: is not JSON',
    ])
    expect(report.results.filter(({ Outcome }) => Outcome === 'stored')).toEqual([
      { Line: 3, Name: 'ACC-2', Outcome: 'stored', Version: 1 },
    ])
    expect(JSON.stringify(report)).not.toContain(secret)
    expect(provider.requests).toHaveLength(1)
  })

  it('POST /imports/grants rejects a second line for a company, and never sends the token of that line', async () => {
    const [first, second] = [await foreignToken(), await foreignToken()]
    const report = await adopt(
      { Realm: '1', RefreshToken: first },
      { Realm: '1', RefreshToken: second },
    )
    expect(report.results[1]).toMatchObject({
      Line: 2,
      Name: 'ACC-1',
      Outcome: 'invalid',
      Reason: 'line 1 has a grant of the same company',
    })
    expect(provider.requests.map(({ form }) => form.get('refresh_token'))).toEqual([first])
  })

  it.each([
    ['an empty body', ndjson(''), 400],
    ['more than 500 lines', ndjson(...Array.from({ length: 501 }, () => '{}')), 400],
    ['a JSON object', json({}), 400],
    ['another content type', { method: 'POST', body: 'x' }, 415],
    ['a body of 5 MB', ndjson('x'.repeat(5 * 1_048_576)), 413],
  ])('POST /imports/grants responds with an error to %s', async (_, init, status) => {
    expect((await service.call('/imports/grants', init)).status).toBe(status)
    expect(provider.requests).toHaveLength(0)
  })

  it.each([
    ['NDJSON', ndjson(...Array.from({ length: 501 }, () => '{}'))],
    ['a JSON list', json(Array.from({ length: 501 }, () => ({})))],
  ])(
    'POST /imports/grants rejects %s with more than 500 lines without validating any line',
    async (_, init) => {
      const validate = vi.spyOn(GrantLine, 'safeParse')
      expect((await service.call('/imports/grants', init)).status).toBe(400)
      expect(validate).not.toHaveBeenCalled()
      validate.mockRestore()
    },
  )

  it("POST /imports/grants rejects the whole request and sends no token if the caller's key is bound to other realms", async () => {
    const folder = await mkdtemp(join(tmpdir(), 'grants-'))
    const path = join(folder, 'keys.json')
    const key = 'bounded-key-0123456789-0123456789-0123'
    const scopes = ['custody:transfer']
    const entry = { id: 'bounded', sha256: digestOf(key), scopes, realms: ['2'] }
    await writeFile(path, JSON.stringify([entry]))
    await service[Symbol.asyncDispose]()
    service = await start({ env: { SERVICE_KEYS_FILE: path } })
    const [own, foreign] = [await foreignToken(), await foreignToken()]
    const send = async (...lines: object[]): Promise<number> => {
      const { headers, ...init } = ndjson(...lines)
      const withKey = { ...(headers as object), Authorization: `Bearer ${key}` }
      return (await service.call('/imports/grants', { ...init, headers: withKey })).status
    }
    const line = { Realm: '2', RefreshToken: own }
    expect(await send(line, { Realm: '1', RefreshToken: foreign })).toBe(403)
    expect(provider.requests).toHaveLength(0)
    expect(await send(line)).toBe(200)
    await rm(folder, { recursive: true })
  })

  it('POST /imports/grants rejects a grant if the id token in the response names another company', async () => {
    provider.script({}) // The provider's response to the code exchange of the other program.
    const token = await foreignToken()
    provider.knobs.idTokenClaims = { realmid: '2' }
    expect(await adoptOne({ Realm: '1', RefreshToken: token })).toMatchObject({
      Outcome: 'refused',
      Code: 'realm_mismatch',
    })
    expect((await service.ask('/credentials/ACC-1')).status).toBe(404)
  })

  it('POST /imports/grants does not send a token again at once after a success response that was cut off', async () => {
    provider.knobs.graceMs = 60_000
    const token = await foreignToken()
    provider.script({ rotatesFirst: true, cuts: 'within' })
    const line = { Realm: '1', RefreshToken: token }
    expect(await adoptOne(line)).toMatchObject({ Outcome: 'unavailable' })
    expect(provider.requests.map(({ form }) => form.get('refresh_token'))).toEqual([token])
    expect(await adoptOne(line)).toMatchObject({ Outcome: 'stored' })
  })

  it('POST /imports/grants explains the rejection of a token if the response to an earlier request was lost', async () => {
    const token = await foreignToken()
    provider.script({ rotatesFirst: true, cuts: 'before' })
    expect(await adoptOne({ Realm: '1', RefreshToken: token })).toMatchObject({
      Outcome: 'refused',
      Code: 'rotation_lost',
    })
  })

  it('POST /imports/grants stores nothing while the provider is unavailable or throttles, and can be repeated later', async () => {
    const line = { Realm: '1', RefreshToken: await foreignToken() }
    provider.script({ status: 502 }, { status: 502 })
    expect(await adoptOne(line)).toMatchObject({
      Outcome: 'unavailable',
      Code: 'provider_unavailable',
    })
    provider.script({ status: 429, headers: { 'Retry-After': '1' } })
    const throttled = await adopt(line)
    expect(throttled).toMatchObject({ unavailable: 1, retry_after: 1 })
    expect(throttled.results[0]).toMatchObject({ Code: 'throttled' })
    provider.requests.length = 0
    expect(await adoptOne(line)).toMatchObject({ Outcome: 'unavailable', Code: 'throttled' })
    expect(provider.requests).toHaveLength(0)
    await eventually(async () => expect(await adoptOne(line)).toMatchObject({ Outcome: 'stored' }))
  })

  it('POST /imports/grants sends at most 20 tokens a second, and at most 4 at the same time', async () => {
    const tokens: string[] = []
    for (let n = 0; n < 12; n += 1) tokens.push(await foreignToken())
    provider.knobs.latencyMs = 100
    await adopt(...tokens.map((RefreshToken, n) => ({ Realm: String(n), RefreshToken })))
    const times = provider.requests.map(({ at }) => at)
    expect((times.at(-1) ?? 0) - (times[0] ?? 0)).toBeGreaterThanOrEqual(11 * 45)
    expect(provider.mostAtOnce).toBeLessThanOrEqual(4)
  })

  it('two replicas never send tokens of the same company at the same time during an import', async () => {
    const line = { Realm: '1', RefreshToken: await foreignToken() }
    await using other = await start({ store: redis.store })
    provider.knobs.latencyMs = 300
    const both = await Promise.all(
      [service, other].map(async (replica) => {
        const response = await replica.call('/imports/grants', ndjson(line))
        return ((await response.json()) as GrantReport).results[0]?.Outcome
      }),
    )
    expect(new Set(both)).toEqual(new Set(['stored', 'unavailable']))
    expect(provider.requests).toHaveLength(1)
  })

  it('POST /imports/grants sends no token if the claim to adopt the grant cannot be stored', async () => {
    const token = await foreignToken()
    await service[Symbol.asyncDispose]()
    service = await start({
      store: {
        ...redis.store,
        async claimAdoption() {
          throw new IntegrationError('store_unavailable', 'for this test')
        },
      },
    })
    const result = await adoptOne({ Realm: '1', RefreshToken: token })
    expect(result).toMatchObject({ Outcome: 'unavailable', Code: 'store_unavailable' })
    expect(provider.requests).toHaveLength(0)
  })

  it('an adopted token pair stays in memory until the store accepts it', async () => {
    const token = await foreignToken()
    let failures = 2
    const store = {
      ...redis.store,
      put: async (...args: Parameters<typeof redis.store.put>) => {
        if (failures > 0) {
          failures -= 1
          throw new IntegrationError('store_unavailable', 'for this test')
        }
        return redis.store.put(...args)
      },
    }
    await service[Symbol.asyncDispose]()
    service = await start({ store })
    expect(await adoptOne({ Realm: '1', RefreshToken: token })).toMatchObject({
      Outcome: 'stored',
    })
    expect(failures).toBe(0)
    expect((await service.ask('/credentials/ACC-1/refresh', json({}))).status).toBe(200)
  })

  it('a process that shuts down while the store is unavailable saves an adopted token pair in a file for the next process', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'rescue-'))
    const rescue = await openRescueFolder(folder, { keys, logger: silent })
    const line = { Realm: '1', RefreshToken: await foreignToken() }
    const { promise: tried, resolve: isTried } = Promise.withResolvers<void>()
    const store = {
      ...redis.store,
      put: async () => {
        isTried()
        throw new IntegrationError('store_unavailable', 'for this test')
      },
    }
    await service[Symbol.asyncDispose]()
    service = await start({ store, rescue })
    const adopting = service.call('/imports/grants', ndjson(line)).catch(() => null)
    await tried
    await service[Symbol.asyncDispose]()
    await adopting
    expect(await readdir(folder)).toHaveLength(1)
    service = await start({ rescue })
    await eventually(async () => expect(await readdir(folder)).toEqual([]))
    expect(await adoptOne(line)).toMatchObject({ Outcome: 'already_here', Version: 1 })
    expect((await service.ask('/credentials/ACC-1/refresh', json({}))).status).toBe(200)
    await rm(folder, { recursive: true })
  })

  it('a company that is connected while its old grant is imported keeps the new grant', async () => {
    const token = await foreignToken()
    failpoint = async (point) => {
      if (point === 'before commit') await service.connect('1')
    }
    expect(await adoptOne({ Realm: '1', RefreshToken: token })).toMatchObject({
      Outcome: 'already_here',
      Version: 1,
      Reason: 'the company was connected meanwhile',
    })
  })
})
