import { EventEmitter } from 'node:events'
import { createLogger } from '@integration-host/shared/observability/logger'
import { attributeErrors } from '@integration-host/shared/process/error-owner'
import { Secret } from '@integration-host/shared/secrets/secret'
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { answered, outcomeOf, TRACE_ID, TRACEPARENT } from '../../test-support/step-outcome.ts'
import { createCoolDowns } from './cool-downs.ts'
import { processOf } from '../../test-support/process-of.ts'
import { bindSettings } from './definition.ts'
import type { CallOutcome } from './http-call.ts'
import type { StepCall } from '../run/progress.ts'
import { LATE_ERROR } from './perform-step.ts'
import { secret } from './settings.ts'
import { StepAbort } from './step-abort.ts'
import { defineStep, type InDoubt, type Step } from './step.ts'

describe('the argument that a step function gets', () => {
  it('a step can read its run, the previous step, and each finished step by name', async () => {
    const { outcome } = await outcomeOf((step: Step) => {
      expect(step).toMatchObject({
        process: 'P',
        name: 'second',
        transactionId: 'a/b',
        replayId: 2,
        isReplay: true,
        realm: '42',
        attempt: 4,
        initialData: { n: 1 },
        previous: { name: 'first', ResponseBody: '{"x":1}', data: { x: 1 }, ReplayID: 2 },
      })
      expect(step.item('first').data).toEqual({ x: 1 })
      expect(() => step.item('second')).toThrow(
        'no finished item second: its finished items are first',
      )
      step.complete({ y: 2 })
    })
    expect(outcome).toEqual({
      kind: 'completed',
      response: null,
      data: { y: 2 },
      endsRun: false,
    })
  })
})

describe('a misspelt member in an argument of a step method', () => {
  const url = 'https://erp.test/orders'

  it.each<[string, (step: Step<{ n: number }>) => unknown, string]>([
    [
      'the options of execute',
      (step) => step.execute({ url }, { timeout: 5 } as object),
      'execute has no option timeout: did you mean timeoutMs?',
    ],
    [
      'the request of execute',
      (step) => step.execute({ url, bdoy: {} } as { url: string }),
      'the request of execute has no option bdoy: did you mean body?',
    ],
    [
      'an option in the request of execute',
      (step) => step.execute({ url, credential: 'ACC-1' } as { url: string }),
      'the request of execute has no member credential: it belongs to the options, execute(request, { credential })',
    ],
    [
      'the options of fetch',
      (step) => step.fetch({ url }, { parse: String } as object),
      'fetch has no option parse: its options are credential, timeoutMs',
    ],
    [
      'the options of fail',
      (step) => step.fail('no', { undoes: true } as object),
      'fail has no option undoes: did you mean undo?',
    ],
    [
      'the options of repeat',
      (step) => step.repeat(1 as never, { after: 5 } as object),
      'repeat has no option after: did you mean afterMs?',
    ],
    [
      'the progress',
      (step) => step.report({ done: 1, off: 2 } as never),
      'report has no option off: did you mean of?',
    ],
  ])('fails the step without a call, and names the member: %s', async (_, call, error) => {
    const { outcome, calls } = await outcomeOf((step: Step<{ n: number }>) => call(step))
    expect(outcome).toMatchObject({
      kind: 'failed',
      errorClass: 'step_threw',
      error: `TypeError: ${error}`,
    })
    expect(calls).toEqual([])
  })

  it('fails the step without a call in the query of its confirm function', async () => {
    const asked = {
      confirm: (step: never) => (step as InDoubt<Step, string>).find({ url, qeury: {} } as never),
    }
    const { outcome, calls } = await outcomeOf(
      Object.assign(() => {}, asked),
      [],
      { isInDoubt: true },
    )
    expect(outcome).toMatchObject({
      kind: 'failed',
      error: 'TypeError: the request of find has no option qeury: did you mean query?',
      isInDoubt: true,
    })
    expect(calls).toEqual([])
  })
})

describe('a copy of the argument of a step function', () => {
  it.each<[string, (step: Step) => Step]>([
    ['a spread', (step) => ({ ...step })],
    ['an object that inherits from it', (step) => Object.create(step) as Step],
    ['a proxy', (step) => new Proxy(step, {})],
  ])('%s has every member, and its signal and log work', async (_, copyOf) => {
    const { outcome } = await outcomeOf((step: Step) => {
      const copy = copyOf(step)
      expect(Object.keys(step)).toEqual(expect.arrayContaining(['signal', 'log', 'execute']))
      expect(copy.signal).toBe(step.signal)
      copy.log.info('copied')
      copy.complete({ id: copy.transactionId })
    })
    expect(outcome).toMatchObject({ kind: 'completed', data: { id: 'a/b' } })
  })
})

describe('a step that throws an error whose members cannot be read', () => {
  const log = () => createLogger('test', 'debug', { write: () => {} })
  const secretive = bindSettings(
    processOf('P', {
      settings: { key: secret() },
      steps: { first: () => null, second: () => null },
    }),
    { key: new Secret('canary-key-0123456789') },
  )

  it.each([
    ['a message that is a symbol', { message: Symbol('why') }],
    ['a name without a text', { name: Object.create(null) as unknown }],
    ['a stack that is a symbol', { stack: Symbol('where') }],
    [
      'a cause that is not readable',
      { cause: Object.assign(new Error(), { message: Symbol('') }) },
    ],
  ])('a step that throws an unreadable error is retried: %s', async (_, members) => {
    for (const change of [{ log }, { log, definition: secretive }]) {
      const { outcome } = await outcomeOf(
        () => Promise.reject(Object.assign(new Error('why'), members)),
        [],
        change,
      )
      expect(outcome).toMatchObject({ kind: 'retry', errorClass: 'step_threw' })
    }
  })

  it('a step that throws an error with unreadable members is retried and left in doubt', async () => {
    const { proxy, revoke } = Proxy.revocable(new Error('why'), {})
    revoke()
    const { outcome } = await outcomeOf(() => Promise.reject(proxy))
    expect(outcome).toEqual({
      kind: 'retry',
      errorClass: 'step_threw',
      error: 'what the step threw or returned cannot be read',
      response: null,
      retryAfterMs: null,
      isInDoubt: true,
    })
  })
})

describe('an HTTP call that a step makes', () => {
  it('onCall gets the URL of a call without user info and query, before the call is sent and after its response', async () => {
    const reported: StepCall[] = []
    let before: readonly StepCall[] = []
    await outcomeOf(
      async (step: Step) => {
        await step.execute({ url: 'https://u:p@x/orders/1?token=secret#top', method: 'post' })
      },
      [],
      {
        onCall: (call) => reported.push(call),
        call: async () => {
          before = [...reported]
          return { ...answered(200), responseId: 'tid-1' } as CallOutcome
        },
      },
    )
    const call = { method: 'POST', url: 'https://x/orders/1', traceId: TRACE_ID }
    expect(before).toEqual([{ ...call, responseId: null }])
    expect(reported.slice(1)).toEqual([{ ...call, responseId: 'tid-1' }])
  })

  it('the first call of a step sends the idempotency key of the step; further calls append a number to the key', async () => {
    const { calls, outcome } = await outcomeOf(
      async (step: Step) => {
        await step.execute({ url: 'http://x/a', query: { q: 'ä&b', n: 1 } })
        await step.execute({ url: 'http://x/b', method: 'post', body: { a: 1 } })
      },
      [answered(200), answered(201, '"done"')],
    )
    expect(calls.map(({ headers }) => headers['idempotency-key'])).toEqual([
      'P/a%2Fb/2/second',
      'P/a%2Fb/2/second/2',
    ])
    expect(calls[0]?.url.href).toBe('http://x/a?q=%C3%A4%26b&n=1')
    expect(calls[1]).toMatchObject({
      method: 'POST',
      body: '{"a":1}',
      headers: { 'content-type': 'application/json', traceparent: TRACEPARENT },
    })
    expect(outcome).toMatchObject({ kind: 'completed', response: { status: 201, body: '"done"' } })
  })

  it.each([
    { 'Content-Length': '0' },
    { host: 'other.example' },
    { 'Transfer-Encoding': 'chunked' },
    { 'x-note': 'a\r\nx-more: b' },
    { 'x y': '' },
  ])('a call for which the step sets the headers %o is not sent', async (headers) => {
    const { outcome, calls } = await outcomeOf((step: Step) =>
      step.execute({ url: 'http://target.example/', headers }),
    )
    expect(outcome).toMatchObject({ kind: 'failed', errorClass: 'step_threw' })
    expect(calls).toEqual([])
  })

  it('a call is sent with every header that the step sets, also with one named __proto__', async () => {
    const headers = JSON.parse('{"__proto__":"a","constructor":"b","X-C":"c"}') as Record<
      string,
      string
    >
    const { calls } = await outcomeOf(
      (step: Step) => step.execute({ url: 'http://x/', headers }),
      [answered(200)],
    )
    expect(Object.entries(calls[0]?.headers ?? {})).toEqual(
      expect.arrayContaining([
        ['__proto__', 'a'],
        ['constructor', 'b'],
        ['x-c', 'c'],
      ]),
    )
  })

  it('a call of a step with a credential is sent only to the gateway, together with the service key', async () => {
    const send = (url: string) =>
      outcomeOf((step: Step) => step.execute({ url }, { credential: 'ACC-42' }), [answered(200)])
    const { calls } = await send('/v3/company/42/query?query=x')
    expect(calls[0]?.url.href).toBe('http://gateway:7218/v3/company/42/query?query=x')
    expect(calls[0]?.headers['authorization']).toBe('Bearer service-key')
    expect(calls[0]?.headers['permit-wait']).toBe('2')
    for (const url of [
      'http://evil/v3/company/42/x',
      '//evil/v3/company/42/x',
      '@evil/v3/company/42/x',
      '.evil/v3/company/42/x',
      '/v3/company/43/x',
      '/v3/company/42/../43/x',
      '/credentials',
    ]) {
      const refused = await send(url)
      expect(refused.calls).toEqual([])
      expect(refused.outcome).toMatchObject({ kind: 'failed', errorClass: 'step_threw' })
    }
  })

  it('the error of a call to a path of the accounting API without a credential says that the credential is missing', async () => {
    const { calls, outcome } = await outcomeOf((step: Step) =>
      step.execute({ url: '/v3/company/42/invoice', method: 'POST' }),
    )
    expect(calls).toEqual([])
    expect(outcome).toMatchObject({
      kind: 'failed',
      errorClass: 'step_threw',
      error: expect.stringContaining('a call to a path such as /v3/company/… needs a credential'),
    })
  })

  it('a step of a run with a realm cannot call for another company, whatever its initial data contains', async () => {
    const refused = await outcomeOf(
      (step: Step) => step.execute({ url: '/v3/company/43/invoice' }, { credential: 'ACC-43' }),
      [answered(200)],
    )
    expect(refused.calls).toEqual([])
    expect(refused.outcome).toMatchObject({ kind: 'failed', errorClass: 'realm_foreign' })
  })

  it('a step of a run without a realm fails at once if it derives the credential of a call from the realm', async () => {
    const { calls, outcome } = await outcomeOf(
      (step: Step) =>
        step.execute(
          { url: `/v3/company/${step.realm}/invoice` },
          { credential: `ACC-${step.realm}` },
        ),
      [answered(200)],
      { realm: null },
    )
    expect(calls).toEqual([])
    expect(outcome).toMatchObject({
      kind: 'failed',
      errorClass: 'realm_missing',
      error: expect.stringContaining('the run has no Realm'),
    })
  })

  it('a step of a run without a realm may make calls for any company', async () => {
    const { calls } = await outcomeOf(
      (step: Step) => step.execute({ url: '/v3/company/43/invoice' }, { credential: 'ACC-43' }),
      [answered(200)],
      { realm: null },
    )
    expect(calls).toHaveLength(1)
  })

  it.each([
    [answered(429, '', '3'), { kind: 'retry', errorClass: 'http_429', retryAfterMs: 3_000 }],
    [answered(500, 'x'), { kind: 'retry', errorClass: 'http_500', retryAfterMs: null }],
    [answered(404, 'x'), { kind: 'failed', errorClass: 'http_404' }],
    [answered(301), { kind: 'failed', errorClass: 'http_301' }],
    [answered(424), { kind: 'failed', errorClass: 'http_424' }],
    [
      { kind: 'failed', reason: 'ECONNREFUSED', isSent: false } as const,
      { kind: 'retry', errorClass: 'network' },
    ],
    [
      { kind: 'failed', reason: 'ECONNRESET', isSent: true } as const,
      { kind: 'retry', errorClass: 'no_answer', isInDoubt: true },
    ],
    [
      { kind: 'too_large', status: 200, retryAfter: null, responseId: null } as const,
      { kind: 'failed', errorClass: 'response_too_large', isInDoubt: true },
    ],
    [
      { kind: 'too_large', status: 503, retryAfter: '2', responseId: null } as const,
      { kind: 'retry', errorClass: 'http_503', retryAfterMs: 2_000 },
    ],
    [{ kind: 'aborted', isSent: false } as const, { kind: 'released' }],
    [
      { kind: 'aborted', isSent: true } as const,
      { kind: 'released', noResponse: 'GET http://x/ got no response: aborted', isInDoubt: true },
    ],
  ])(
    'after the call outcome %j has ended a step, the code of the step can neither send a call nor change the outcome',
    async (call, expected) => {
      const { outcome, calls } = await outcomeOf(
        async (step: Step) => {
          await step.execute({ url: 'http://x/?secret=1' }).catch(() => {})
          await step.execute({ url: 'http://x/' }).catch(() => {})
          step.complete()
          step.setStatus('Completed')
        },
        [call],
      )
      expect(outcome).toMatchObject(expected)
      expect(calls).toHaveLength(1)
      expect(JSON.stringify(outcome)).not.toContain('secret')
    },
  )

  it('an attempt of a step is not counted if its call fails while the internet is unreachable', async () => {
    const { outcome } = await outcomeOf(
      (step: Step) => step.execute({ url: 'http://x/' }),
      [{ kind: 'failed', reason: 'ENETUNREACH', isSent: false }],
      { isOnline: async () => false },
    )
    expect(outcome).toEqual({ kind: 'released' })
  })

  it('a run waits for its credential if the gateway responds with 424', async () => {
    const { outcome } = await outcomeOf(
      (step: Step) => step.execute({ url: '/v3/company/42/x' }, { credential: 'ACC-42' }),
      [answered(424)],
    )
    expect(outcome).toMatchObject({ kind: 'waiting', credential: 'ACC-42' })
  })
})

describe('an error body of the provider', () => {
  const throughGateway = (step: Step) =>
    step.execute({ url: '/v3/company/42/x' }, { credential: 'ACC-42' })
  const elsewhere = (step: Step) => step.execute({ url: 'http://x/' })
  const faultBody = (code: string) => JSON.stringify({ Fault: { Error: [{ code }] } })

  it.each([
    [400, '5020', 'provider_permission_denied', 'Give that user the right'],
    [403, '3100', 'provider_permission_denied', 'reconnect the company as an administrator'],
    [401, '120', 'provider_permission_denied', 'reconnect the company as an administrator'],
    [401, '130', 'provider_environment_mixed', 'sandbox and of production are mixed'],
    [400, '6190', 'provider_subscription_ended', 'subscription has ended'],
    [200, '6240', 'provider_fault', 'its body is an error'],
  ])(
    'a response with status %i and the provider error code %s fails the step as %s, and the error names the remedy',
    async (...row) => {
      const [status, code, errorClass, remedy] = row
      const { outcome } = await outcomeOf(throughGateway, [answered(status, faultBody(code))])
      expect(outcome).toMatchObject({
        kind: 'failed',
        errorClass,
        error: expect.stringMatching(new RegExp(`^${code}: GET .* responded with ${status}\\. `)),
        response: { status, body: faultBody(code) },
      })
      expect(outcome).toMatchObject({ error: expect.stringContaining(remedy) })
      expect(outcome).not.toHaveProperty('isInDoubt')
    },
  )

  it('the reason of a step that the provider rejects is the code, message and detail of the provider', async () => {
    const error = { code: '6240', Message: 'Duplicate Name Exists Error', Detail: 'It exists.' }
    const body = JSON.stringify({ Fault: { Error: [error] } })
    expect(await outcomeOf(throughGateway, [answered(400, body)])).toMatchObject({
      outcome: {
        errorClass: 'http_400',
        error: expect.stringMatching(
          /^6240 Duplicate Name Exists Error: It exists\. \(.* responded with 400\)$/,
        ),
      },
    })
    expect(await outcomeOf(elsewhere, [answered(400, body)])).toMatchObject({
      outcome: { error: expect.stringMatching(/^GET .* responded with 400$/) },
    })
  })

  it('a step is left in doubt if the provider reports a duplicate requestid', async () => {
    const { outcome } = await outcomeOf(throughGateway, [answered(400, faultBody('600'))])
    expect(outcome).toMatchObject({
      kind: 'failed',
      errorClass: 'provider_duplicate_request',
      isInDoubt: true,
    })
  })

  it('after a 401 with an unknown error code, a call is retried after a minute', async () => {
    const body = JSON.stringify({ fault: { error: [{ code: '3200' }] } })
    const { outcome } = await outcomeOf(throughGateway, [answered(401, body)])
    expect(outcome).toMatchObject({ kind: 'retry', errorClass: 'http_401', retryAfterMs: 60_000 })
    const foreign = await outcomeOf(elsewhere, [answered(401, body)])
    expect(foreign.outcome).toMatchObject({ kind: 'failed', errorClass: 'http_401' })
  })

  it('a response with an unknown provider error code fails the step because of its HTTP status', async () => {
    const { outcome } = await outcomeOf(throughGateway, [answered(400, faultBody('610'))])
    expect(outcome).toMatchObject({ kind: 'failed', errorClass: 'http_400' })
  })

  it.each([500, 503, 429])(
    'a call that gets status %i is retried, whatever error code is in the response body',
    async (status) => {
      const { outcome } = await outcomeOf(throughGateway, [answered(status, faultBody('120'))])
      expect(['retry', 'held']).toContain(outcome.kind)
    },
  )

  it("a response to a call without a credential is not classified by the provider's error codes", async () => {
    const { outcome } = await outcomeOf(elsewhere, [answered(200, faultBody('5020'))])
    expect(outcome.kind).toBe('completed')
  })
})

describe('a 429 response to a call with a credential', () => {
  const callFor = (realm: string) => (step: Step) =>
    step.execute({ url: `/v3/company/${realm}/x` }, { credential: `ACC-${realm}` })

  it('a 429 response to a call with a credential delays later calls with this credential, but no calls with other credentials', async () => {
    const coolDowns = createCoolDowns(() => 0)
    const first = await outcomeOf(callFor('42'), [answered(429, 'slow', '3')], { coolDowns })
    expect(first.outcome).toEqual({
      kind: 'held',
      errorClass: 'http_429',
      error: 'GET http://gateway:7218/v3/company/42/x responded with 429',
      response: { status: 429, body: 'slow' },
      delayMs: 3_000,
    })
    const second = await outcomeOf(callFor('42'), [answered(200)], { coolDowns })
    expect(second.calls).toEqual([])
    expect(second.outcome).toEqual({
      kind: 'held',
      errorClass: 'credential_held',
      error:
        'GET http://gateway:7218/v3/company/42/x was not sent: ACC-42 is in a cool-down after a 429',
      response: null,
      delayMs: 3_100,
    })
    const others = [callFor('43'), (step: Step) => step.execute({ url: 'http://x/' })]
    for (const other of others)
      expect(
        (await outcomeOf(other, [answered(200)], { coolDowns, realm: null })).outcome.kind,
      ).toBe('completed')
  })

  it('a second 429 is marked as repeated if steps still wait for a start time after the first 429', async () => {
    const clock = { now: 0 }
    const coolDowns = createCoolDowns(() => clock.now)
    const throttled = () => outcomeOf(callFor('42'), [answered(429, 'slow', '3')], { coolDowns })
    expect((await throttled()).outcome).not.toHaveProperty('isRepeated')
    await outcomeOf(callFor('42'), [answered(200)], { coolDowns })
    clock.now = 3_000
    expect((await throttled()).outcome).toMatchObject({ isRepeated: true })
    clock.now = 20_000
    expect((await throttled()).outcome).not.toHaveProperty('isRepeated')
  })

  it('a call does not wait in the gateway while other steps of its company wait for their start time', async () => {
    const clock = { now: 0 }
    const coolDowns = createCoolDowns(() => clock.now)
    await outcomeOf(callFor('42'), [answered(429, 'slow', '3')], { coolDowns })
    await outcomeOf(callFor('42'), [answered(200)], { coolDowns })
    clock.now = 3_000
    const { calls } = await outcomeOf(callFor('42'), [answered(200)], { coolDowns })
    expect(calls[0]?.headers['permit-wait']).toBe('0')
  })

  it('a step in doubt stays in doubt if its next call gets a 429', async () => {
    const { outcome } = await outcomeOf(callFor('42'), [answered(429)], { isInDoubt: true })
    expect(outcome).toMatchObject({ kind: 'held', isInDoubt: true })
  })
})

describe('a step that ends with fail() or setStatus()', () => {
  it('a run fails with the reason that its step passes to fail()', async () => {
    const { outcome } = await outcomeOf((step: Step) => step.fail('no such account'))
    expect(outcome).toMatchObject({
      kind: 'failed',
      errorClass: 'step_failed',
      error: 'no such account',
    })
  })

  it('setStatus() completes the run after an HTTP call of the step, and the response to this call is stored', async () => {
    const { outcome } = await outcomeOf(
      async (step: Step) => {
        await step.execute({ url: 'http://x/' }, { parse: () => ({ a: 1 }) })
        step.setStatus('Completed')
      },
      [answered(200)],
    )
    expect(outcome).toEqual({
      kind: 'completed',
      response: { status: 200, body: '{}' },
      data: { a: 1 },
      endsRun: true,
    })
  })

  it('a step that throws after a successful call is retried', async () => {
    const { outcome } = await outcomeOf(
      async (step: Step) => {
        await step.execute({ url: 'http://x/' })
        throw new RangeError('a bug')
      },
      [answered(200)],
    )
    expect(outcome).toMatchObject({ kind: 'retry', errorClass: 'step_threw' })
  })
})

describe('a step function that throws', () => {
  const missing = null as unknown as { readonly data: string }

  it.each([
    ['reads a member of null', () => missing.data],
    ['reads an item that does not exist', (step: Step) => step.item('third')],
    ['throws a ReferenceError', () => Promise.reject(new ReferenceError('x is not defined'))],
  ])(
    'a step fails without a retry because of a bug in its code: the function %s',
    async (_, run) => {
      const { outcome } = await outcomeOf(run)
      expect(outcome).toMatchObject({ kind: 'failed', errorClass: 'step_threw' })
      expect(outcome).not.toHaveProperty('isInDoubt')
    },
  )

  it.each([
    ['an error of its own', new Error('no')],
    [
      'the TypeError with which fetch reports a failed network',
      new TypeError('fetch failed', { cause: new Error('ECONNREFUSED') }),
    ],
  ])('a step is retried if its function throws %s', async (_, error) => {
    const { outcome } = await outcomeOf(() => Promise.reject(error))
    expect(outcome).toMatchObject({ kind: 'retry', errorClass: 'step_threw' })
  })

  it('a step is left in doubt if its function throws after a successful unsafe call', async () => {
    const { outcome } = await outcomeOf(
      async (step: Step) => {
        await step.execute({ url: 'http://x/', method: 'POST' })
        return missing.data
      },
      [answered(200)],
    )
    expect(outcome).toMatchObject({ kind: 'failed', errorClass: 'step_threw', isInDoubt: true })
  })
})

describe('a successful response without the JSON that a step has asked for', () => {
  const page = (contentType: string, body: string) => ({
    ...answered(200, body),
    headers: ['Content-Type', contentType],
  })
  const post = { url: 'http://x/', method: 'POST' }

  it.each<[string, (step: Step) => unknown]>([
    ['execute', (step) => step.execute(post)],
    ['execute with parse', (step) => step.execute(post, { parse: () => null })],
    ['fetch', (step) => step.fetch(post)],
  ])('is retried in doubt and never completes the step: %s', async (_, run) => {
    for (const response of [page('text/html', '<!doctype html>Back soon'), answered(200, 'ok')]) {
      const { outcome } = await outcomeOf(run, [response])
      expect(outcome).toMatchObject({
        kind: 'retry',
        errorClass: 'response_not_json',
        isInDoubt: true,
      })
    }
  })

  it('without a Content-Type, a body is judged by its content: JSON completes the step', async () => {
    const run = (step: Step) => step.execute(post)
    const outcomes = await Promise.all(
      ['{"a":1}', 'true', '', 'true story', '{"a":'].map(async (body) => {
        const { outcome } = await outcomeOf(run, [answered(200, body)])
        return outcome?.kind
      }),
    )
    expect(outcomes).toEqual(['completed', 'completed', 'completed', 'retry', 'retry'])
  })

  it('completes a step that has asked for text, and a step that gets no body', async () => {
    const asked = await outcomeOf(
      (step: Step) => step.execute({ ...post, headers: { Accept: 'text/plain' } }),
      [page('text/plain', 'ok')],
    )
    const empty = await outcomeOf((step: Step) => step.execute(post), [page('text/html', '')])
    expect([asked.outcome?.kind, empty.outcome?.kind]).toEqual(['completed', 'completed'])
  })

  it('a body that is not text fails the step in doubt, and nothing of it is stored', async () => {
    const { outcome } = await outcomeOf(
      (step: Step) => step.execute(post),
      [
        {
          kind: 'unreadable',
          errorClass: 'response_not_text',
          why: 'not text',
          status: 200,
          retryAfter: null,
          responseId: null,
        },
      ],
    )
    expect(outcome).toMatchObject({
      kind: 'failed',
      errorClass: 'response_not_text',
      response: { status: 200, body: '' },
      isInDoubt: true,
    })
  })
})

describe('an error that a step does not handle', () => {
  beforeEach(() => {
    const attribution = attributeErrors()
    onTestFinished(() => attribution[Symbol.dispose]())
  })
  const later = (ms = 1) => new Promise((resolve) => setTimeout(resolve, ms))
  const never = () => new Promise(() => {})
  const rejection = 'step_unhandled_rejection'
  const exception = 'step_uncaught_exception'

  it.each<[string, (step: Step) => unknown, string]>([
    [
      'a promise that it does not await is rejected',
      (step) => {
        void Promise.reject(new Error('x'))
        return step.complete('u')
      },
      rejection,
    ],
    [
      'an async function that it does not await throws during its call',
      async (step) => {
        void later().then(() => Promise.reject(new Error('x')))
        await later(20)
        step.complete('u')
      },
      rejection,
    ],
    [
      'a callback throws in a microtask',
      (step) => {
        queueMicrotask(() => {
          throw new Error('x')
        })
        step.complete('u')
      },
      exception,
    ],
    [
      'a timer throws, and the step waits for it for ever',
      () => {
        setTimeout(() => {
          throw new Error('x')
        }, 1)
        return never()
      },
      exception,
    ],
    [
      'an emitter without a listener for errors emits one',
      () => {
        const emitter = new EventEmitter()
        setImmediate(() => emitter.emit('error', new Error('x')))
        return never()
      },
      exception,
    ],
  ])('fails its attempt, which is retried: %s', async (_, run, errorClass) => {
    const { outcome } = await outcomeOf(run)
    expect(outcome).toMatchObject({ kind: 'retry', errorClass, error: 'Error: x' })
  })

  it('an unhandled TypeError of its own code fails the run without a retry', async () => {
    const { outcome } = await outcomeOf((step: Step) => {
      void Promise.reject(new TypeError('x is not a function'))
      step.complete()
    })
    expect(outcome).toMatchObject({ kind: 'failed', errorClass: rejection })
  })

  it.each([
    ['undefined', undefined],
    ['a text', 'no'],
    [
      'a proxy that throws',
      new Proxy(
        {},
        {
          getPrototypeOf: () => {
            throw new Error('trap')
          },
        },
      ),
    ],
  ])('a promise that is rejected with %s fails its attempt', async (_, reason) => {
    const { outcome } = await outcomeOf((step: Step) => {
      Promise.withResolvers().reject(reason)
      step.complete()
    })
    expect(outcome).toMatchObject({ kind: 'retry', errorClass: rejection })
  })

  it('a listener of the signal that throws fails the attempt that has added it', async () => {
    const abort = new StepAbort()
    const { outcome } = await outcomeOf(
      (step: Step) => {
        step.signal.addEventListener('abort', () => {
          throw new Error('x')
        })
        setImmediate(() => abort.abort('timeout'))
        return never()
      },
      [],
      { abort },
    )
    expect(outcome).toMatchObject({ kind: 'retry', errorClass: exception })
  })

  it('the step is in doubt if its call has succeeded, and the result of a call in flight is awaited', async () => {
    const { outcome } = await outcomeOf(
      async (step: Step) => {
        setImmediate(() => void Promise.reject(new Error('x')))
        await step.execute({ url: 'http://x/', method: 'POST' })
        await never()
      },
      [later(20).then(() => answered(200)) as never],
    )
    expect(outcome).toMatchObject({ kind: 'retry', errorClass: rejection, isInDoubt: true })
  })

  it('a call that the step does not await and that fails decides the outcome of its attempt', async () => {
    const { outcome } = await outcomeOf(
      async (step: Step) => {
        void step.execute({ url: 'http://x/', method: 'POST' })
        await never()
      },
      [answered(503)],
    )
    expect(outcome).toMatchObject({ kind: 'retry', errorClass: 'http_503' })
  })

  it('a rejection after the attempt has ended changes no outcome and is logged', async () => {
    const lines: string[] = []
    const logged = Promise.withResolvers<void>()
    const write = (line: string) => {
      lines.push(line)
      logged.resolve()
    }
    const { outcome } = await outcomeOf(
      (step: Step) => {
        setTimeout(() => void Promise.reject(new Error('x')), 20)
        return step.complete('u')
      },
      [],
      { log: () => createLogger('test', 'error', { write }) },
    )
    await logged.promise
    expect(outcome).toMatchObject({ kind: 'completed', data: 'u' })
    expect(lines.map((line) => JSON.parse(line) as unknown)).toMatchObject([
      { msg: LATE_ERROR, err: { message: 'x' } },
    ])
  })
})

describe('a call of waitFor() in a step', () => {
  it('waitFor() ends the attempt of a step, and the attempt is not counted', async () => {
    const { outcome } = await outcomeOf(
      async (step: Step) => {
        await step.execute({ url: 'http://x/' })
        step.waitFor(60_000)
      },
      [answered(200)],
    )
    expect(outcome).toEqual({ kind: 'later', delayMs: 60_000 })
  })

  it.each([Number.NaN, -1, Number.POSITIVE_INFINITY])(
    'waitFor() rejects a delay of %d ms or shortens it to a year',
    async (delayMs) => {
      const { outcome } = await outcomeOf((step: Step) => step.waitFor(delayMs))
      expect(outcome).toMatchObject(
        delayMs > 0
          ? { kind: 'later', delayMs: 31_536_000_000 }
          : { kind: 'retry', errorClass: 'step_threw' },
      )
    },
  )
})

describe('fail() after an HTTP call of a step', () => {
  it('the step fails although the call took effect, and the response is not stored', async () => {
    const { outcome } = await outcomeOf(
      async (step: Step) => {
        await step.execute({ url: 'http://x/', method: 'POST' })
        return step.fail('the order is too large')
      },
      [answered(201, '{"id":1}')],
    )
    expect(outcome).toMatchObject({
      kind: 'failed',
      errorClass: 'step_failed',
      error: 'the order is too large',
    })
  })
})

describe('steps that an attempt leaves in doubt', () => {
  const lost: CallOutcome = { kind: 'failed', reason: 'ECONNRESET', isSent: true }
  const unsent: CallOutcome = { kind: 'failed', reason: 'ECONNREFUSED', isSent: false }
  const call = (step: Step) =>
    step.execute({ url: 'http://x/' }, { parse: (body) => body as number })
  const callAndThrow = async (step: Step) => {
    await call(step)
    throw new RangeError('a bug')
  }
  const callAndFail = async (step: Step) => {
    await call(step)
    step.fail('rejected')
  }

  it.each([
    ['a call without a response', 'leaves', call, lost, true],
    ['a call that was never sent', 'does not leave', call, unsent, false],
    [
      'status 500 from a target that may have crashed after its work',
      'leaves',
      call,
      answered(500),
      true,
    ],
    ['status 504 from a gateway that got no response itself', 'leaves', call, answered(504), true],
    ['a response with status 503', 'does not leave', call, answered(503), false],
    ['a response with status 429', 'does not leave', call, answered(429), false],
    ['a response with status 400', 'does not leave', call, answered(400), false],
    ['a success with an unreadable body', 'leaves', call, answered(200, 'nope'), true],
    ['an error thrown after a successful call', 'leaves', callAndThrow, answered(200, '1'), true],
    ['fail() after a successful call', 'does not leave', callAndFail, answered(200, '1'), false],
  ])('%s %s the step in doubt', async (_, __, handler, outcome, isInDoubt) => {
    const run = await outcomeOf(handler, [outcome])
    expect((run.outcome as { isInDoubt?: boolean }).isInDoubt === true).toBe(isInDoubt)
  })

  it('a step in doubt stays in doubt after a further attempt that sent no call', async () => {
    const { outcome } = await outcomeOf(call, [unsent], { isInDoubt: true })
    expect(outcome).toMatchObject({ errorClass: 'network', isInDoubt: true })
  })
})

describe('a step in doubt that has a confirm function', () => {
  const step = defineStep(
    (given: Step) =>
      given.execute(
        { url: 'http://x/orders', method: 'POST' },
        { parse: (body) => body as string },
      ),
    {
      confirm: async (given) => {
        const found = await given.find(
          { url: 'http://x/orders', query: { key: given.idempotencyKey } },
          { parse: (body) => body as string },
        )
        return found === null ? 'not_done' : given.complete(found.data)
      },
    },
  )

  it('the confirm function of a step is not called if the step is not in doubt', async () => {
    const { calls } = await outcomeOf(step, [answered(200, '"O-1"')])
    expect(calls.map(({ method }) => method)).toEqual(['POST'])
  })

  it('a step in doubt completes with the data of its confirm function, and its call is not repeated', async () => {
    const { outcome, calls } = await outcomeOf(step, [answered(200, '"O-1"')], { isInDoubt: true })
    expect(outcome).toEqual({
      kind: 'completed',
      response: { status: 200, body: '"O-1"' },
      data: 'O-1',
      endsRun: false,
    })
    expect(calls).toHaveLength(1)
    expect(calls[0]?.url.searchParams.get('key')).toBe('P/a%2Fb/2/second')
    // The query of `confirm` must not have the idempotency key of the step's call. With the same key, the target would
    // return its stored response to that call.
    expect(calls[0]?.headers['idempotency-key']).toBeUndefined()
  })

  it.each([404, 410])(
    'a step in doubt runs again with the same idempotency key if the query of its confirm function gets the status %i',
    async (status) => {
      const { outcome, calls } = await outcomeOf(step, [answered(status), answered(503)], {
        isInDoubt: true,
      })
      expect(calls.map(({ method }) => method)).toEqual(['GET', 'POST'])
      expect(calls[1]?.headers['idempotency-key']).toBe('P/a%2Fb/2/second')
      expect(outcome).toMatchObject({ kind: 'retry', errorClass: 'http_503' })
      expect(outcome).not.toHaveProperty('isInDoubt')
    },
  )

  it.each([
    ['is temporarily unavailable', answered(503), { kind: 'retry', errorClass: 'http_503' }],
    ['rejects the query', answered(403), { kind: 'failed', errorClass: 'http_403' }],
  ])(
    'a step stays in doubt and is not run if the target of its confirm function %s',
    async (_, callOutcome, expected) => {
      const { outcome, calls } = await outcomeOf(step, [callOutcome], { isInDoubt: true })
      expect(outcome).toMatchObject({ ...expected, isInDoubt: true })
      expect(calls).toHaveLength(1)
    },
  )

  it.each([
    ['throws', () => Promise.reject(new Error('no')), { kind: 'retry', errorClass: 'step_threw' }],
    [
      'returns neither a completion nor not_done',
      async () => {},
      { kind: 'failed', errorClass: 'status_not_set' },
    ],
    ['calls waitFor', async (given: Step) => given.waitFor(5), { kind: 'later', delayMs: 5 }],
  ])('a step stays in doubt if its confirm function %s', async (_, confirm, expected) => {
    const careless = Object.assign(() => {}, { confirm })
    const { outcome } = await outcomeOf(careless, [], { isInDoubt: true })
    expect(outcome).toMatchObject({ ...expected, isInDoubt: true })
  })
})
