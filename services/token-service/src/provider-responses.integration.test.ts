/**
 * Tests unusual responses of the token endpoint over real HTTP and Redis: the fault of the credential, the tokens that
 * stay stored, and the number of requests. adapters/openid/provider.test.ts tests more responses, without Redis.
 */
import { changeRecord, expiringIn } from '@integration-host/shared/test-support/change-record'
import { createLogger } from '@integration-host/shared/observability/logger'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Scripted, startScriptedProvider } from '../test-support/scripted-provider.ts'
import {
  json,
  silent,
  startTestService,
  testKeys,
  type TestService,
  useTestRedis,
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
const page = '<!doctype html><title>Sign in</title>'

interface Row {
  readonly what: string
  readonly answer: Scripted
  /** The number of requests that a refresh or a code exchange sends, with all retries after unusable responses. */
  readonly calls: { readonly refresh: number; readonly exchange: number }
  /** The expected fault of the credential: its class, and the part of its message after the name of the credential. */
  readonly fault: { readonly code: string; readonly body: string | RegExp }
  /** Whether only a new authorization ends the fault. */
  readonly isTerminal?: boolean
}

const BAD_RESPONSE = 'provider_bad_response'
const UNAVAILABLE = 'provider_unavailable'

/** A test case without a usable response. A refresh is then retried once, and a code exchange twice. */
const unusable = (what: string, answer: Scripted, code: string, body: string | RegExp): Row => ({
  what,
  answer,
  calls: { refresh: 2, exchange: 3 },
  fault: { code, body },
})
/** A test case whose response may have held new tokens. The refresh token is then not sent again at once. */
const unread = (...input: Parameters<typeof unusable>): Row => ({
  ...unusable(...input),
  calls: { refresh: 1, exchange: 3 },
})
/** A test case in which the provider rejects the request. The request is then not retried. */
const final = (what: string, answer: Scripted, code: string, body: string): Row => ({
  what,
  answer,
  calls: { refresh: 1, exchange: 1 },
  fault: { code, body },
  isTerminal: code === 'used_elsewhere',
})

/** One test case for each outcome of a token request and each fault; provider.test.ts has the forms of a response. */
const rows: readonly Row[] = [
  unusable('a login page with status 200', { body: page }, BAD_RESPONSE, page),
  unusable('a reset before the response', { cuts: 'before' }, UNAVAILABLE, /^no response \(/),
  unusable('status 500', { status: 500, body: 'boom' }, UNAVAILABLE, 'boom'),
  unusable(
    'a redirect with tokens in its body',
    { status: 302, body: text, headers: { Location: 'http://127.0.0.1:1/' } },
    UNAVAILABLE,
    '{"access_token":"[redacted]","token_type":"bearer","expires_in":3600,"refresh_token":"[redacted]"}',
  ),
  unread('a reset within the response', { cuts: 'within' }, UNAVAILABLE, /^no response \(/),
  unread(
    'no access token',
    { body: JSON.stringify({ ...grant, access_token: undefined }) },
    BAD_RESPONSE,
    '{"token_type":"bearer","expires_in":3600,"refresh_token":"[redacted]"}',
  ),
  final(
    'the error invalid_grant',
    { status: 400, body: '{"error":"invalid_grant","error_description":"Token revoked"}' },
    'used_elsewhere',
    '{"error":"invalid_grant","error_description":"Token revoked"}',
  ),
  final(
    'the error unauthorized_client',
    { status: 400, body: '{"error":"unauthorized_client"}' },
    'provider_rejected',
    '{"error":"unauthorized_client"}',
  ),
  {
    what: 'status 429',
    answer: { status: 429, body: 'slow', headers: { 'Retry-After': '30' } },
    calls: { refresh: 1, exchange: 1 },
    fault: { code: UNAVAILABLE, body: 'slow' },
  },
]

/** Starts a new fake provider, and a service on Redis that uses this provider. */
async function open(logger = silent) {
  const opened = new AsyncDisposableStack()
  const keys = testKeys()
  const provider = opened.use(await startScriptedProvider())
  // The fake provider rotates the refresh token even if its response is truncated. The fake provider must therefore
  // still accept the previous refresh token.
  provider.knobs.graceMs = 60_000
  const redis = await useTestRedis(opened, { keys })
  const { store, authorizations } = redis
  const service: TestService = opened.use(
    await startTestService({ provider, store, authorizations, keys, logger }),
  )
  return {
    provider,
    redis,
    service,
    askedFor: (kind: 'refresh_token' | 'authorization_code') =>
      provider.requests.filter(({ grant: of }) => of === kind).length,
    /** The stored values of all fields of the record that contain a secret. */
    custody: () =>
      redis.redis.hmget(NAME, 'Version', 'Authenticator', 'RefreshToken', 'StoreA', 'Previous'),
    /** Changes the record so that its access token has expired a second ago. */
    expire: () => changeRecord(redis.redis, keys, NAME, expiringIn(-1_000)),
    [Symbol.asyncDispose]: () => opened.disposeAsync(),
  }
}
type Harness = Awaited<ReturnType<typeof open>>

describe('a refresh that gets an unusual response from the token endpoint', () => {
  let harness: Harness
  beforeEach(async () => {
    harness = await open()
    expect((await harness.service.connect(REALM)).status).toBe(201)
  })
  afterEach(() => harness[Symbol.asyncDispose]())

  it.each(rows)(
    'a refresh keeps the stored token pair after $what, and the fault reports the response',
    async (row) => {
      const { provider, service, custody } = harness
      await harness.expire()
      const before = await custody()
      provider.script(...Array<Scripted>(row.calls.refresh).fill(row.answer))
      const refused = await service.ask(`/credentials/${NAME}/token`)
      expect([refused.status, refused.body['code']]).toEqual(
        row.isTerminal ? [424, 'credential_faulted'] : [503, 'provider_unavailable'],
      )
      expect(harness.askedFor('refresh_token')).toBe(row.calls.refresh)
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

      // The provider responds normally to the next refresh, which therefore succeeds unless the grant has ended.
      if (row.isTerminal) return
      expect(
        (await service.ask(`/credentials/${NAME}/refresh`, { method: 'POST' })).body,
      ).toMatchObject({ Version: 2, Status: 'active' })
      expect(await custody()).not.toEqual(before)
    },
  )

  it('the expiry of a refreshed token is counted from the start of the request', async () => {
    const { provider, service } = harness
    provider.script({ members: { expires_in: '1800' } })
    const startedAt = Date.now()
    const { status, body } = await service.ask(`/credentials/${NAME}/refresh`, { method: 'POST' })
    expect([status, body['Version']]).toEqual([200, 2])
    const expiry = Date.parse(String(body['Expiry'])) - 1_800_000
    expect(expiry).toBeGreaterThanOrEqual(startedAt)
    expect(expiry).toBeLessThanOrEqual(Date.now())
    expect(harness.askedFor('refresh_token')).toBe(1)
  })
})

describe('a new token pair in an unusual response of a provider that accepts each refresh token once', () => {
  it('a refresh stores the token pair, sends one request, and names what was odd in the log and the audit log', async () => {
    const lines: string[] = []
    const logger = createLogger('test', 'info', { write: (line) => void lines.push(line) })
    await using harness = await open(logger)
    const { provider, service } = harness
    provider.knobs.graceMs = 0
    expect((await service.connect(REALM)).status).toBe(201)
    provider.script({ members: { error: null }, coding: 'gzip' })
    const refresh = () => service.ask(`/credentials/${NAME}/refresh`, json({ Reason: 'a test' }))
    expect((await refresh()).body).toMatchObject({ Version: 2, Status: 'active' })
    expect(harness.askedFor('refresh_token')).toBe(1)
    expect((await refresh()).body).toMatchObject({ Version: 3, Status: 'active' })

    const odd = ['the content type is not JSON', 'the body is compressed', 'error is empty']
    const logged = lines
      .map((line) => JSON.parse(line) as Record<string, unknown>)
      .filter(({ msg }) => msg === 'credential refresh ended')
    expect(logged).toMatchObject([
      { level: 'warn', outcome: 'refreshed', calls: 1, oddities: odd },
      { level: 'info', outcome: 'refreshed', calls: 1 },
    ])
    await eventually(async () => {
      const { items } = (await service.ask('/audit')).body as { items: Record<string, unknown>[] }
      expect(items.filter(({ What }) => What === 'refreshed')).toMatchObject([
        { Outcome: 'ok', Reason: 'a test' },
        { Outcome: 'ok', Reason: `a test; odd response of the provider: ${odd.join('; ')}` },
      ])
    })
    expect(lines.join('')).not.toMatch(/[ar]t-[0-9a-f]{8}/)
  })

  it.each<[string, Scripted]>([
    ['a body whose end is missing', { cuts: 'within' }],
    ['bytes that cannot be read', { rotatesFirst: true, body: Buffer.from([0x80, 0x81, 0x82]) }],
  ])('a refresh does not send the old token again at once after %s', async (_, step) => {
    await using harness = await open()
    const { provider, service } = harness
    provider.knobs.graceMs = 0
    expect((await service.connect(REALM)).status).toBe(201)
    await harness.expire()
    provider.script(step)
    expect(await service.ask(`/credentials/${NAME}/token`)).toMatchObject({ status: 503 })
    // Later calls do not send the token either until the delay is over.
    expect(await service.ask(`/credentials/${NAME}/token`)).toMatchObject({ status: 503 })
    expect(harness.askedFor('refresh_token')).toBe(1)
    const { body } = await service.ask(`/credentials/${NAME}`)
    expect((body['Fault'] as { Code: string }).Code).toMatch(
      /^provider_(?:bad_response|unavailable)$/,
    )
  })
})

describe('a code exchange that gets an unusual response from the token endpoint', () => {
  /** The test cases run concurrently, because each of them waits for the retry delays of the service. */
  const found = new Map<
    string,
    { answer: unknown; calls: number; stored: number; atOnce: number }
  >()
  beforeAll(async () => {
    await Promise.all(
      rows.map(async ({ what, answer }) => {
        await using harness = await open()
        // A fourth request would be detected, because it would get a normal response and its tokens would be stored.
        harness.provider.script(answer, answer, answer)
        const { status, body } = await harness.service.connect(REALM).then(async (response) => ({
          status: response.status,
          body: (await response.json()) as Record<string, unknown>,
        }))
        found.set(what, {
          answer: { status, ...body },
          calls: harness.askedFor('authorization_code'),
          stored: await harness.redis.redis.exists(NAME),
          atOnce: harness.provider.mostAtOnce,
        })
      }),
    )
  })
  afterAll(() => found.clear())

  it.each(rows)(
    'a code exchange stores nothing after $what, and is retried as often as allowed',
    ({ what, calls }) => {
      expect(found.get(what)).toEqual({
        answer: expect.objectContaining({ status: 502, code: 'code_exchange_failed' }),
        calls: calls.exchange,
        stored: 0,
        atOnce: 1,
      })
      expect(JSON.stringify(found.get(what))).not.toMatch(/[ar]t-[0-9a-fx]|code-[0-9a-f]/)
    },
  )
})
