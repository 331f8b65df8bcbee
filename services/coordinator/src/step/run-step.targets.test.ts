import { setFlagsFromString } from 'node:v8'
import { createLogger } from '@integration-host/shared/observability/logger'
import { Secret } from '@integration-host/shared/secrets/secret'
import { describe, expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { answered, outcomeOf } from '../../test-support/step-outcome.ts'
import { createCoolDowns } from './cool-downs.ts'
import { defineProcess } from './define-process.ts'
import { bindSettings } from './definition.ts'
import type { CallOutcome } from './http-call.ts'
import { secret } from './settings.ts'
import type { Step } from './step.ts'
import type { TargetRequest } from './step-request.ts'

const key = 'canary "key" 0123456789/+&ü'
const plainKey = 'canary-key-0123456789'

const define = (auth: 'bearer' | 'basic' | 'header' = 'bearer', value = plainKey) =>
  bindSettings(
    defineProcess('P', {
      settings: { erpUrl: z.url(), erpKey: secret() },
      targets: ({ erpUrl, erpKey }) => ({
        erp: {
          url: erpUrl,
          timeoutMs: 5_000,
          auth: {
            bearer: { bearer: erpKey },
            basic: { basic: { user: 'me', password: erpKey } },
            header: { header: { name: 'X-Api-Key', value: erpKey } },
          }[auth],
        },
        open: { url: 'http://open.example' },
      }),
    })
      .step('first', (step) => step.complete())
      .step('second', (step) => step.complete()),
    { erpUrl: 'https://erp.example/api/v1', erpKey: new Secret(value) },
  )

const sendTo = (request: Partial<TargetRequest>) => (step: Step) =>
  step.execute({ target: 'erp', path: '/orders', method: 'POST', ...request })

describe('a call to a target of the process', () => {
  it.each([
    ['bearer', 'authorization', `Bearer ${plainKey}`],
    ['basic', 'authorization', `Basic ${btoa(`me:${plainKey}`)}`],
    ['header', 'x-api-key', plainKey],
  ] as const)(
    'a call is sent to the URL of its target with the authentication (%s) and the time limit of the target',
    async (auth, name, value) => {
      const timeouts: number[] = []
      const { outcome, calls } = await outcomeOf(
        sendTo({ body: { n: 1 }, query: { a: 'b' } }),
        [],
        {
          definition: define(auth),
          call: async (request, { timeoutMs }) => {
            timeouts.push(timeoutMs)
            expect(request.headers[name]).toBe(value)
            expect(request.url.href).toBe('https://erp.example/api/v1/orders?a=b')
            return answered(200)
          },
        },
      )
      expect(outcome.kind).toBe('completed')
      expect(calls).toEqual([])
      expect(timeouts).toEqual([5_000])
    },
  )

  it.each([
    { path: '/../../admin' },
    { path: '/..%2f..%2fx', isSent: true },
    { path: '//evil.example/orders', isSent: true },
    { path: '@evil.example/orders' },
    { path: '.evil.example' },
    { path: 'https://evil.example' },
  ])(
    'a call with the path $path is not sent to an address outside the URL of its target',
    async ({ path, isSent = false }) => {
      const { outcome, calls } = await outcomeOf(sendTo({ path }), [answered(200)], {
        definition: define(),
      })
      expect(calls.map(({ url }) => url.origin)).toEqual(isSent ? ['https://erp.example'] : [])
      for (const { url } of calls) expect(url.pathname).toMatch(/^\/api\/v1\//)
      if (!isSent) expect(outcome).toMatchObject({ kind: 'failed', errorClass: 'step_threw' })
    },
  )

  it('a redirect to another host is not followed, so that the key of the target is not sent there', async () => {
    const moved = {
      ...answered(302),
      headers: ['Location', 'https://evil.example/'],
    } as CallOutcome
    const { outcome, calls } = await outcomeOf(sendTo({}), [moved], { definition: define() })
    expect(calls).toHaveLength(1)
    expect(outcome).toMatchObject({ kind: 'failed', errorClass: 'http_302' })
  })

  it.each([
    ['an unknown target', sendTo({ target: 'crm' })],
    ['the header of the authentication', sendTo({ headers: { Authorization: 'Bearer mine' } })],
    [
      'a credential',
      (step: Step) => step.execute({ target: 'erp', path: '/x' }, { credential: 'ACC-42' }),
    ],
    ['a url beside the path', sendTo({ url: 'http://x/' } as object)],
  ])('a step fails at once if it calls a target with %s', async (_, run) => {
    const { outcome, calls } = await outcomeOf(run, [answered(200)], { definition: define() })
    expect(outcome).toMatchObject({ kind: 'failed', errorClass: 'step_threw' })
    expect(calls).toEqual([])
  })

  it.each([
    [429, '7', 7_000],
    [429, null, 60_000],
    [503, '7', 7_000],
  ])(
    'a response with status %d and Retry-After %s starts a cool-down of only this target, and the attempt is not counted',
    async (status, retryAfter, delayMs) => {
      const coolDowns = createCoolDowns(() => 0)
      const change = { definition: define(), coolDowns }
      const first = await outcomeOf(sendTo({}), [answered(status, '', retryAfter)], change)
      expect(first.outcome).toMatchObject({ kind: 'held', errorClass: `http_${status}`, delayMs })
      const second = await outcomeOf(sendTo({}), [answered(200)], change)
      expect(second.calls).toEqual([])
      expect(second.outcome).toEqual({
        kind: 'held',
        errorClass: 'target_held',
        error:
          'POST https://erp.example/api/v1/orders was not sent: erp is in a cool-down after a 429 or 503',
        response: null,
        delayMs: delayMs + 100,
      })
      const other = await outcomeOf(sendTo({ target: 'open' }), [answered(200)], change)
      expect(other.outcome.kind).toBe('completed')
      const polled = await outcomeOf(
        (step: Step) => step.fetch({ target: 'open', path: '/' }),
        [answered(status, '', retryAfter)],
        change,
      )
      expect(polled.outcome).toMatchObject({ kind: 'held', delayMs })
    },
  )

  it('a call to a target is retried after the usual delay if it gets a 503 without Retry-After', async () => {
    const { outcome } = await outcomeOf(sendTo({}), [answered(503)], { definition: define() })
    expect(outcome).toMatchObject({ kind: 'retry', errorClass: 'http_503' })
  })
})

describe('the secret of a target', () => {
  const forms = [
    key,
    JSON.stringify(key).slice(1, -1),
    encodeURIComponent(key),
    Buffer.from(key).toString('base64'),
    Buffer.from(key).toString('hex'),
  ]
  const definition = define('bearer', plainKey)
  const odd = define('basic', key)

  it.each([
    ['the URL', { path: `/x/${plainKey}` }],
    ['the URL, encoded', { path: `/x/%63${plainKey.slice(1)}` }],
    ['the query', { query: { key: plainKey } }],
    ['a header', { headers: { 'x-key': `key=${plainKey}` } }],
    ['the body', { body: { deep: [{ key: plainKey }] } }],
    ['the body as text', { body: `key=${plainKey}` }],
  ])('a request that contains the secret in %s is not sent', async (_, request) => {
    for (const target of ['erp', 'open']) {
      const { outcome, calls } = await outcomeOf(sendTo({ target, ...request }), [answered(200)], {
        definition,
      })
      expect(calls).toEqual([])
      expect(outcome).toMatchObject({ kind: 'failed', errorClass: 'secret_in_request' })
      expect(JSON.stringify(outcome)).not.toContain(plainKey)
    }
  })

  it('a secret that a response contains is redacted in the stored response, in the data and in the headers', async () => {
    const seen: unknown[] = []
    const echo = {
      ...answered(200, JSON.stringify({ all: forms.join(' | ') })),
      headers: ['X-Echo', `key ${key}`],
    } as CallOutcome
    const { outcome } = await outcomeOf(
      async (step: Step) => {
        const reply = await step.fetch({ target: 'erp', path: '/echo' })
        const data = reply.parse((body) => body as string)
        seen.push(reply.body, reply.header('x-echo'), data)
        return step.complete({ mine: key, theirs: data, [key]: 1 })
      },
      [echo],
      { definition: odd },
    )
    expect(outcome).toMatchObject({ kind: 'completed', data: { mine: '[secret]' } })
    for (const form of forms) expect(JSON.stringify([outcome, seen])).not.toContain(form)
    expect(seen[1]).toBe('key [secret]')
  })

  it.each([
    ['fail', (step: Step) => step.fail(`no ${key}`)],
    ['an error', () => Promise.reject(new Error(`no ${key}`, { cause: new Error(key) }))],
  ])('the secret is redacted in the reason of a failure: %s', async (_, run) => {
    const { outcome } = await outcomeOf(run, [], { definition: odd })
    expect(outcome).toMatchObject({ error: expect.stringContaining('no [secret]') })
  })

  it('a secret is redacted in the messages, data and errors that a step logs', async () => {
    const lines: string[] = []
    const logger = createLogger('test', 'debug', { write: (line) => void lines.push(line) })
    await outcomeOf(
      async (step: Step) => {
        step.log.info(`the target accepts the key ${key}`)
        step.log.warn(
          { key, deep: { list: [key] }, err: new Error(`rejected key ${key}`) },
          `the target has rejected the key ${key}`,
        )
        step.log.error('the target accepts the key %s', key)
        const cycle: Record<string, unknown> = { key }
        cycle['self'] = cycle
        step.log.debug({ cycle }, 'an entry with a circular value')
        throw new Error(`thrown ${key}`)
      },
      [],
      { definition: odd, log: () => logger },
    )
    expect(lines).toHaveLength(5)
    for (const form of forms) expect(lines.join('')).not.toContain(form)
    expect(JSON.parse(lines[1] ?? '')).toMatchObject({
      key: '[secret]',
      deep: { list: ['[secret]'] },
      err: { message: 'rejected key [secret]' },
      msg: 'the target has rejected the key [secret]',
    })
    expect(lines[4]).toContain('thrown [secret]')
  })

  it.each([
    [
      { number: 1234567890, list: [-12345678.5, 7] },
      { number: '[secret]', list: ['[secret]', 7] },
    ],
    [{ 'a 12345678': '12345678' }, { 'a [secret]': '[secret]' }],
  ])(
    'the secret is redacted in the texts, names and numbers of the data that a step stores: %j',
    async (data, stored) => {
      const { outcome } = await outcomeOf((step: Step) => step.complete(data), [], {
        definition: define('bearer', '12345678'),
      })
      expect(outcome).toMatchObject({ kind: 'completed', data: stored })
    },
  )

  it('data is stored unchanged if its JSON text contains the secret but none of its values does', async () => {
    const { outcome } = await outcomeOf((step: Step) => step.complete({ a: 'x', token: 1 }), [], {
      definition: define('bearer', 'x","token'),
    })
    expect(outcome).toMatchObject({ kind: 'completed', data: { a: 'x', token: 1 } })
  })

  it.each([
    ['12345678', '{"id":1234567890}', '{"id":"[secret]"}'],
    ['12345678', '{"id":1.2345678e7}', '{"id":"[secret]"}'],
    // All numbers without the secret keep their digits and their notation. The first of the two members `a` is
    // redacted, although a JSON parser would return only the second.
    [
      '12345678',
      '{ "n": 9007199254740993, "a": 12345678, "a": 1.50 }',
      '{ "n": 9007199254740993, "a": "[secret]", "a": 1.50 }',
    ],
    ['x","token', '{"a":"x","token":1}', '{"a":"x","token":1}'],
    [
      'canary+/<"\\ü key',
      String.raw`{"a":"canary\u002B\/\u003c\"\\\u00FC key"}`,
      '{"a":"[secret]"}',
    ],
    ['canary+/<"\\ü key', String.raw`a=canary\u002b\/\u003C\"\\\u00fc key`, 'a=[secret]'],
    ['canary+/<"\\ü key', 'a=canary%2b%2f%3C%22%5c%c3%BC+key&b=1', 'a=[secret]&b=1'],
  ])('a response is stored without the secret: %s in %s', async (value, body, stored) => {
    const response = { ...answered(200, body), headers: ['Content-Type', 'text/csv'] }
    const { outcome } = await outcomeOf(sendTo({}), [response], {
      definition: define('basic', value),
    })
    expect(outcome).toMatchObject({ kind: 'completed', response: { body: stored } })
  })

  it('a response is stored without the secret in a process that has compiled many regular expressions', async () => {
    // V8 compiles all further expressions like this after the first megabyte of them.
    setFlagsFromString('--no-regexp-optimization')
    onTestFinished(() => setFlagsFromString('--regexp-optimization'))
    const body = 'a=many%2b%2F%3C%3e&b=many\\u002B\\u002f\\u003C\\u003e'
    const { outcome } = await outcomeOf(sendTo({}), [answered(200, body)], {
      definition: define('bearer', 'many+/<>'),
    })
    expect(outcome).toMatchObject({ response: { body: 'a=[secret]&b=[secret]' } })
  })

  it('a secret is redacted in a response that is nested so deeply that recursion would overflow the stack', async () => {
    const nested = (inner: string) => '['.repeat(100_000) + inner + ']'.repeat(100_000)
    const { outcome } = await outcomeOf(sendTo({}), [answered(200, nested(`"${plainKey}"`))], {
      definition,
    })
    expect(outcome).toMatchObject({ response: { body: nested('"[secret]"') } })
  })

  it('the error about a secret in a URL does not contain the secret in any encoding', async () => {
    const { outcome } = await outcomeOf(sendTo({ path: `/x/%2563${plainKey.slice(1)}` }), [], {
      definition,
    })
    expect(outcome).toMatchObject({
      errorClass: 'secret_in_request',
      error: expect.stringMatching(/^POST https:\/\/erp\.example was not sent/),
    })
    expect(JSON.stringify(outcome)).not.toContain(plainKey.slice(1))
  })

  it.each([
    ['fail', (step: Step) => step.fail('x'.repeat(990) + plainKey)],
    ['an error', () => Promise.reject(new RangeError('x'.repeat(970) + plainKey))],
  ])('the reason of a failure is redacted before it is shortened: %s', async (_, run) => {
    const { outcome } = await outcomeOf(run, [], { definition })
    expect(JSON.stringify(outcome)).toMatch(/x{970}/)
    expect(JSON.stringify(outcome)).not.toContain(plainKey.slice(0, 4))
  })

  it.each([answered(200), { kind: 'too_large', status: 200, retryAfter: null } as CallOutcome])(
    'the id of a response is stored without the secret: %j',
    async (received) => {
      const ids: (string | null)[] = []
      await outcomeOf(sendTo({}), [{ ...received, responseId: `id ${plainKey}` } as CallOutcome], {
        definition,
        onCall: ({ responseId }) => ids.push(responseId),
      })
      expect(ids).toEqual([null, 'id [secret]'])
    },
  )

  it('a step cannot read the secret of a target', async () => {
    await outcomeOf(
      (step: Step) => {
        expect(step.settings).toEqual({
          dataDir: '/data',
          erpUrl: 'https://erp.example/api/v1',
        })
        return step.complete()
      },
      [],
      { definition },
    )
  })
})

describe('the input of a process', () => {
  const definition = defineProcess('P', {
    input: z.object({ amount: z.coerce.number(), note: z.string().default('none') }),
  })
    .step('first', (step) => step.complete())
    .step('second', (step) => step.complete())

  it('a step gets the result of the input schema for the initial data', async () => {
    const { outcome } = await outcomeOf((step: Step) => step.complete(step.initialData), [], {
      definition,
      initialData: { amount: '66' },
    })
    expect(outcome).toMatchObject({ kind: 'completed', data: { amount: 66, note: 'none' } })
  })

  it('a run whose initial data does not match the schema fails before its first step, and its error names the invalid members', async () => {
    const { outcome } = await outcomeOf(() => Promise.reject(new Error('has run')), [], {
      definition,
      initialData: { amount: 'much', note: 7 },
      isInDoubt: true,
    })
    expect(outcome).toMatchObject({ kind: 'failed', errorClass: 'input_invalid', isInDoubt: true })
    expect(outcome).toMatchObject({
      error: expect.stringMatching(/InitialData\.amount: .*; InitialData\.note: /),
    })
    expect(JSON.stringify(outcome)).not.toContain('much')
  })

  it('initial data is rejected if a refinement of the schema throws', async () => {
    const throwing = defineProcess('P', {
      input: z.unknown().refine(() => {
        throw new RangeError('a bug')
      }),
    })
    const { outcome } = await outcomeOf(() => null, [], {
      definition: throwing
        .step('first', (step) => step.complete())
        .step('second', (step) => step.complete()),
    })
    expect(outcome).toMatchObject({
      kind: 'failed',
      errorClass: 'input_invalid',
      error: expect.stringContaining('threw RangeError'),
    })
  })
})
