/**
 * The effect of unusual responses of the token endpoint on the service and its records, over real HTTP and
 * Redis. adapters/openid/provider.test.ts has more variations of them, at the adapter.
 */
import { gzipSync } from 'node:zlib'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Scripted, startScriptedProvider } from '../test-support/scripted-provider.ts'
import {
  dropKeys,
  openTestRedis,
  startTestService,
  type TestRedis,
  type TestService,
  testKeys,
  usable,
} from '../test-support/service-fixture.ts'

const NAME = 'ACC-9341453908059889'
const REALM = NAME.slice(4)
const grant = {
  access_token: 'at-x',
  token_type: 'bearer',
  expires_in: 3600,
  refresh_token: 'rt-x',
}
const text = JSON.stringify(grant)
const tooLarge = 'no response (the response is too large)'
const page = '<!doctype html><title>Sign in</title>'

interface Row {
  readonly what: string
  readonly answer: Scripted
  /** The number of requests of a refresh and of a code exchange: an unusable response is retried. */
  readonly calls: { readonly refresh: number; readonly exchange: number }
  /** Class and body of the fault that a refresh leaves when the token has expired. */
  readonly fault: { readonly code: string; readonly body: string | RegExp }
  /** Whether only a new grant helps. */
  readonly isTerminal?: boolean
}

/** No answer, or none that can be used: one retry of a refresh, two of a code exchange. */
const unusable = (what: string, answer: Scripted, body: string | RegExp): Row => ({
  what,
  answer,
  calls: { refresh: 2, exchange: 3 },
  fault: {
    code: (answer.status ?? 200) === 200 && isWhole(answer) ? BAD : AWAY,
    body,
  },
})
const BAD = 'provider_bad_response'
const AWAY = 'provider_unavailable'
const isWhole = ({ cuts, body = '' }: Scripted): boolean =>
  cuts === undefined && body.length <= 65_536
/** An answer of the provider, which no retry changes. */
const final = (what: string, answer: Scripted, code: string, body: string): Row => ({
  what,
  answer,
  calls: { refresh: 1, exchange: 1 },
  fault: { code, body },
  isTerminal: code === 'invalid_grant',
})

const rows: readonly Row[] = [
  unusable('a login page with 200', { body: page, headers: { 'Content-Type': 'text/html' } }, page),
  unusable('XML with 200', { body: '<Fault type="SERVICE"/>' }, '<Fault type="SERVICE"/>'),
  unusable('nothing with 200', { body: '' }, ''),
  unusable('null with 200', { body: 'null' }, 'null'),
  unusable(
    'JSON cut in the middle of a token',
    { body: text.slice(0, 20) },
    '{"access_token":"[redacted]',
  ),
  unusable('a connection reset before the answer', { cuts: 'before' }, /^no response \(/),
  unusable('a connection reset in the answer', { cuts: 'within' }, /^no response \(/),
  unusable(
    'no access token',
    { body: JSON.stringify({ ...grant, access_token: undefined }) },
    '{"token_type":"bearer","expires_in":3600,"refresh_token":"[redacted]"}',
  ),
  unusable(
    'an empty access token',
    { body: JSON.stringify({ ...grant, access_token: '' }) },
    '{"access_token":"[redacted]","token_type":"bearer","expires_in":3600,"refresh_token":"[redacted]"}',
  ),
  final(
    'invalid_grant with 200',
    { body: '{"error":"invalid_grant"}' },
    'invalid_grant',
    '{"error":"invalid_grant"}',
  ),
  unusable(
    'no token type',
    { body: JSON.stringify({ ...grant, token_type: undefined }) },
    '{"access_token":"[redacted]","expires_in":3600,"refresh_token":"[redacted]"}',
  ),
  unusable(
    'expires_in NaN',
    { body: text.replace('3600', 'NaN') },
    '{"access_token":"[redacted]","token_type":"bearer","expires_in":NaN,"refresh_token":"[redacted]"}',
  ),
  final(
    'invalid_grant',
    { status: 400, body: '{"error":"invalid_grant","error_description":"Token revoked"}' },
    'invalid_grant',
    '{"error":"invalid_grant","error_description":"Token revoked"}',
  ),
  final(
    'unauthorized_client',
    { status: 400, body: '{"error":"unauthorized_client"}' },
    'provider_rejected',
    '{"error":"unauthorized_client"}',
  ),
  final(
    'an XML fault with 400',
    { status: 400, body: '<Fault type="AUTHENTICATION"/>' },
    'provider_rejected',
    '<Fault type="AUTHENTICATION"/>',
  ),
  {
    what: '429',
    answer: { status: 429, body: 'slow', headers: { 'Retry-After': '30' } },
    calls: { refresh: 1, exchange: 1 },
    fault: { code: AWAY, body: 'slow' },
  },
  unusable('500', { status: 500, body: 'boom' }, 'boom'),
  unusable('502 with a page', { status: 502, body: page }, page),
  unusable(
    'a redirect with tokens in it',
    { status: 302, body: text, headers: { Location: 'http://127.0.0.1:1/' } },
    '{"access_token":"[redacted]","token_type":"bearer","expires_in":3600,"refresh_token":"[redacted]"}',
  ),
  unusable('10 MB', { body: `${text}${' '.repeat(10_000_000)}` }, tooLarge),
  unusable(
    'a gzip bomb',
    { body: gzipSync(Buffer.alloc(20_000_000)), headers: { 'Content-Encoding': 'gzip' } },
    /^.{1,1001}$/s,
  ),
  unusable('60,000 levels', { body: '['.repeat(60_000) }, /^\[{1000}…$/),
  unusable('UTF-16', { body: Buffer.from('null', 'utf16le') }, 'n\0u\0l\0l\0'),
  unusable('a byte order mark', { body: '\ufeffnull' }, '\ufeffnull'),
]

/** A service on Redis with a provider of its own, and the company connected. */
async function open() {
  const opened = new AsyncDisposableStack()
  const keys = testKeys()
  const provider = opened.use(await startScriptedProvider())
  provider.knobs.graceMs = 60_000 // what an answer that is cut off has rotated can still be had
  const redis: TestRedis = await openTestRedis({ keys })
  opened.defer(() => dropKeys(redis.prefix))
  opened.use(redis)
  await usable(redis)
  const { store, authorizations } = redis
  const service: TestService = opened.use(
    await startTestService({ provider, store, authorizations, keys }),
  )
  return {
    provider,
    redis,
    service,
    askedFor: (kind: 'refresh_token' | 'authorization_code') =>
      provider.requests.filter(({ grant: of }) => of === kind).length,
    /** All that a token could be in, byte for byte. */
    custody: () =>
      redis.redis.hmget(NAME, 'Version', 'Authenticator', 'RefreshToken', 'StoreA', 'Previous'),
    /** As if the hour of the access token were over. */
    expire: () =>
      redis.redis.hset(
        NAME,
        'Expiry',
        new Date(Date.now() - 1_000).toISOString(),
        'RefreshedAt',
        new Date(Date.now() - 3_601_000).toISOString(),
      ),
    [Symbol.asyncDispose]: () => opened.disposeAsync(),
  }
}
type Rig = Awaited<ReturnType<typeof open>>

describe('a refresh whose response is', () => {
  let rig: Rig
  beforeEach(async () => {
    rig = await open()
    expect((await rig.service.connect(REALM)).status).toBe(201)
  })
  afterEach(() => rig[Symbol.asyncDispose]())

  it.each(rows)('$what keeps the stored pair and reports the response', async (row) => {
    const { provider, service, custody } = rig
    const before = await custody()
    await rig.expire()
    provider.script(...Array<Scripted>(row.calls.refresh).fill(row.answer))
    const refused = await service.ask(`/credentials/${NAME}/token`)
    expect([refused.status, refused.body['code']]).toEqual(
      row.isTerminal ? [424, 'credential_faulted'] : [503, 'provider_unavailable'],
    )
    expect(rig.askedFor('refresh_token')).toBe(row.calls.refresh)
    expect(await custody()).toEqual(before)

    const { body } = await service.ask(`/credentials/${NAME}`)
    const fault = body['Fault'] as { Code: string; Message: string } | undefined
    const start = `Couldn't refresh token for realm ${NAME}, `
    expect(fault?.Code).toBe(row.fault.code)
    expect(fault?.Message.slice(0, start.length)).toBe(start)
    const told = fault?.Message.slice(start.length)
    if (typeof row.fault.body === 'string') expect(told).toBe(row.fault.body)
    else expect(told).toMatch(row.fault.body)
    expect(told?.length).toBeLessThanOrEqual(1_001)
    expect(JSON.stringify([refused, body])).not.toMatch(/[ar]t-[0-9a-fx]/)

    // And a whole answer after it is taken, where there can be one.
    if (row.isTerminal) return
    expect(
      (await service.ask(`/credentials/${NAME}/refresh`, { method: 'POST' })).body,
    ).toMatchObject({ Version: 2, Status: 'active' })
    expect(await custody()).not.toEqual(before)
  })

  it.each([
    ['absent', undefined, 3_000],
    ['-1', -1, 3_000],
    ['text', '1800', 1_800],
    ['no number', 'soon', 3_000],
    ['1e12', 1e12, 86_400],
  ])('expires_in %s is stored with a valid date', async (_, expiresIn, seconds) => {
    const { provider, service } = rig
    provider.script({ members: { expires_in: expiresIn } })
    const startedAt = Date.now()
    const { status, body } = await service.ask(`/credentials/${NAME}/refresh`, { method: 'POST' })
    expect([status, body['Version']]).toEqual([200, 2])
    const expiry = Date.parse(String(body['Expiry'])) - seconds * 1_000
    // It counts from the start of the request.
    expect(expiry).toBeGreaterThanOrEqual(startedAt)
    expect(expiry).toBeLessThanOrEqual(Date.now())
    expect(rig.askedFor('refresh_token')).toBe(1)
  })
})

describe('a code exchange whose response is', () => {
  /** All at once: the pauses between the tries are the service's own. */
  const found = new Map<
    string,
    { answer: unknown; calls: number; stored: number; atOnce: number }
  >()
  beforeAll(async () => {
    await Promise.all(
      rows.map(async ({ what, answer }) => {
        await using rig = await open()
        // A further request would succeed and be stored.
        rig.provider.script(answer, answer, answer)
        const { status, body } = await rig.service.connect(REALM).then(async (response) => ({
          status: response.status,
          body: (await response.json()) as Record<string, unknown>,
        }))
        found.set(what, {
          answer: { status, ...body },
          calls: rig.askedFor('authorization_code'),
          stored: await rig.redis.redis.exists(NAME),
          atOnce: rig.provider.mostAtOnce,
        })
      }),
    )
  })
  afterAll(() => found.clear())

  it.each(rows)('$what stores nothing, and is retried as often as allowed', ({ what, calls }) => {
    expect(found.get(what)).toEqual({
      answer: expect.objectContaining({ status: 502, code: 'code_exchange_failed' }),
      calls: calls.exchange,
      stored: 0,
      atOnce: 1,
    })
    expect(JSON.stringify(found.get(what))).not.toMatch(/[ar]t-[0-9a-fx]|code-[0-9a-f]/)
  })
})
