import { createHmac, randomBytes } from 'node:crypto'
import { Secret } from '@integration-host/shared/secrets/secret'
import { describe, expect, it } from 'vitest'
import type { SendDeps } from '../step/send-call.ts'
import { StepAbort } from '../step/step-abort.ts'
import type { Claim } from '../run/transaction-source.ts'
import {
  createWebhookProcess,
  type PostResult,
  type PostWebhook,
  signedHeaders,
} from './deliver.ts'
import type { Receiver } from './receivers.ts'

const MINUTE = 60_000
const HOUR = 60 * MINUTE
const eventAt = Date.parse('2026-11-20T00:00:00.000Z')
const key = randomBytes(32)
const receiver: Receiver = {
  id: 'hooks.example.com-00000000',
  url: new URL('https://hooks.example.com/hidden'),
  isAllowedByName: false,
  key: new Secret(key.toString('base64')),
  events: new Set(),
}
const claimOf = (attempt: number, initialData: object = {}): Claim => ({
  lease: {} as Claim['lease'],
  items: [],
  run: {
    Attempt: attempt,
    Realm: '4711',
    InitialData: {
      Receiver: receiver.id,
      MessageID: 'ACC-4711/1/stored',
      Type: 'credential.stored',
      At: '2026-11-20T00:00:00.000123+00:00',
      Data: { Name: 'ACC-4711' },
      ...initialData,
    },
  } as unknown as Claim['run'],
})
const deliver = async (
  result: PostResult | PostWebhook,
  { attempt = 1, ageMs = 0, data = {} } = {},
) => {
  const process = createWebhookProcess({
    receivers: () => [receiver],
    post: typeof result === 'function' ? result : () => Promise.resolve(result),
    now: () => eventAt + ageMs,
    random: () => 0.5,
  })
  return process.runBuiltIn?.(claimOf(attempt, data), { abort: new StepAbort() } as SendDeps)
}
const responded = (status: number, retryAfterMs: number | null = null): PostResult => ({
  kind: 'responded',
  status,
  retryAfterMs,
})

describe('the delivery of a webhook', () => {
  it('the signature of a webhook request covers its id, its time and its exact body', async () => {
    const requests: Parameters<PostWebhook>[0][] = []
    await deliver((request) => {
      requests.push(request)
      return Promise.resolve(responded(204))
    })
    const { headers = {}, body = '' } = requests[0] ?? {}
    expect(JSON.parse(body)).toEqual({
      type: 'credential.stored',
      timestamp: '2026-11-20T00:00:00.000Z',
      data: { Realm: '4711', Name: 'ACC-4711' },
    })
    const signed = `ACC-4711/1/stored.${eventAt / 1_000}.${body}`
    expect(headers).toMatchObject({
      'content-type': 'application/json',
      'webhook-id': 'ACC-4711/1/stored',
      'webhook-timestamp': String(eventAt / 1_000),
      'webhook-signature': `v1,${createHmac('sha256', key).update(signed).digest('base64')}`,
    })
  })

  it('the signature of the example in the Standard Webhooks specification is reproduced', () => {
    const headers = signedHeaders(
      {
        key: new Secret('MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'),
        id: 'msg_p5jXN8AQM9LWM0D4loKWxJek',
        body: '{"test": 2432232314}',
      },
      1_614_265_330_000,
    )
    expect(headers['webhook-signature']).toBe('v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=')
  })

  it.each([200, 204, 299])(
    'a response with the status %i completes the run of a webhook',
    async (status) => {
      expect(await deliver(responded(status))).toMatchObject({
        kind: 'completed',
        response: { status, body: '' },
      })
    },
  )

  it.each([100, 301, 307, 400, 401, 404, 429, 500, 503])(
    'a webhook is retried after a response with the status %i',
    async (status) => {
      expect(await deliver(responded(status))).toMatchObject({
        kind: 'retry',
        errorClass: `http_${status}`,
        error: `the receiver hooks.example.com-00000000 responded with ${status}`,
      })
    },
  )

  it.each([
    [
      'the connection is refused',
      { kind: 'failed', reason: 'ECONNREFUSED', isSent: false },
      'network',
    ],
    [
      'the receiver does not respond in time',
      { kind: 'failed', reason: 'ETIMEDOUT', isSent: true },
      'no_answer',
    ],
    ['the receiver has a private address', { kind: 'private_address' }, 'webhook_address_refused'],
  ] as const satisfies readonly (readonly [string, PostResult, string])[])(
    'a webhook is retried if %s, and the error contains no path',
    async (_, result, errorClass) => {
      const outcome = await deliver(result)
      expect(outcome).toMatchObject({ kind: 'retry', errorClass })
      expect(JSON.stringify(outcome)).not.toContain('hidden')
    },
  )

  it('a webhook call that a shutdown aborts does not count as an attempt', async () => {
    expect(await deliver({ kind: 'aborted' })).toEqual({ kind: 'released' })
  })

  it('a webhook is retried until three days after its event, and at least five times', async () => {
    expect(await deliver(responded(500), { attempt: 900, ageMs: 71 * HOUR })).toMatchObject({
      kind: 'retry',
    })
    expect(await deliver(responded(500), { attempt: 900, ageMs: 73 * HOUR })).toMatchObject({
      kind: 'failed',
    })
    expect(await deliver(responded(500), { attempt: 4, ageMs: 999 * HOUR })).toMatchObject({
      kind: 'retry',
    })
    expect(await deliver(responded(500), { attempt: 5, ageMs: 999 * HOUR })).toMatchObject({
      kind: 'failed',
    })
  })

  it('a response with the status 410 fails the run of a webhook without a retry', async () => {
    expect(await deliver(responded(410))).toMatchObject({ kind: 'failed', errorClass: 'http_410' })
  })

  it.each([
    [0, 5_000],
    [60_000, 60_000],
    [1_000 * HOUR, HOUR],
  ])(
    'the webhook process limits a Retry-After of %i ms to between 5 s and an hour',
    async (asked, waited) => {
      expect(await deliver(responded(503, asked))).toMatchObject({ retryAfterMs: waited })
    },
  )

  it.each([
    ['its receiver was removed', { Receiver: 'other' }, 'webhook_receiver_removed'],
    ['its initial data is not that of a webhook', { Type: 'nonsense' }, 'webhook_invalid'],
  ])('the run of a webhook fails if %s', async (_, data, errorClass) => {
    const result = deliver(() => Promise.reject(new Error('must not be called')), {
      data,
      ageMs: 15 * MINUTE,
    })
    expect(await result).toMatchObject({ kind: 'failed', errorClass })
  })

  it('a webhook to an unknown receiver waits for up to 15 minutes without an attempt, because this replica may not know the receiver yet', async () => {
    const data = { Receiver: 'new' }
    expect(await deliver(responded(200), { data, ageMs: 14 * MINUTE })).toEqual({
      kind: 'later',
      delayMs: 45_000,
      error: 'WEBHOOKS_FILE has no receiver new any more',
    })
  })

  it.each([
    [
      'throws',
      () => {
        throw new TypeError('https://hooks.example.com/hidden')
      },
    ],
    ['rejects', () => Promise.reject(new TypeError('https://hooks.example.com/hidden'))],
  ] satisfies [string, PostWebhook][])(
    'a webhook request that %s is retried like any failure, and the error contains no path',
    async (_, post) => {
      const outcome = await deliver(post)
      expect(outcome).toMatchObject({ kind: 'retry', errorClass: 'step_threw' })
      expect(JSON.stringify(outcome)).not.toContain('hidden')
      expect(await deliver(post, { attempt: 5, ageMs: 73 * HOUR })).toMatchObject({
        kind: 'failed',
        errorClass: 'step_threw',
      })
    },
  )
})

describe('the concurrent calls to a receiver', () => {
  it('a receiver gets at most 32 webhooks at a time, or two while it fails, and the others wait without an attempt', async () => {
    const open: ((result: PostResult) => void)[] = []
    const process = createWebhookProcess({
      receivers: () => [receiver],
      post: () => new Promise((resolve) => open.push(resolve)),
      now: () => eventAt,
      random: () => 0.5,
    })
    const start = async () =>
      process.runBuiltIn?.(claimOf(1), { abort: new StepAbort() } as SendDeps)
    const respond = (result: PostResult): void => open.shift()?.(result)
    const calls = Array.from({ length: 32 }, start)
    expect(await start()).toMatchObject({ kind: 'later', delayMs: 750 })
    while (open.length > 0) respond(responded(500))
    await Promise.all(calls)
    const probes = [start(), start()]
    expect(await start()).toMatchObject({ kind: 'later', delayMs: 45_000 })
    respond(responded(200))
    await probes[0]
    const more = Array.from({ length: 31 }, start)
    expect(await start()).toMatchObject({ kind: 'later', delayMs: 750 })
    while (open.length > 0) respond(responded(200))
    await Promise.all([...probes, ...more])
  })
})
