import { createLogger } from '@integration-host/shared/logger'
import { describe, expect, expectTypeOf, it } from 'vitest'
import type { Claim } from '../transaction/transaction-source.ts'
import type { CallOutcome, CallRequest } from './http-call.ts'
import { type DataOf, runStep, type Step, type StepDeps } from './step.ts'

const never = new AbortController().signal
const claim: Claim = {
  lease: {
    Process: 'P',
    TransactionID: 'a/b',
    ReplayID: 2,
    step: 'second',
    version: 3,
    owner: 'me',
  },
  header: {
    Process: 'P',
    TransactionID: 'a/b',
    ReplayID: 2,
    Status: 'Running',
    StepName: 'second',
    InitialData: { n: 1 },
    Realm: '42',
    Version: 3,
    Attempt: 4,
    NextAttemptAt: null,
    WaitingFor: null,
    LastError: null,
    ErrorClass: null,
    CreatedAt: '',
    UpdatedAt: '',
    CompletedAt: null,
  },
  items: [
    {
      StepName: 'first',
      Status: 'Completed',
      Attempt: 1,
      IdempotencyKey: 'k',
      ResponseStatus: 200,
      ResponseBody: '{"x":1}',
      Data: { x: 1 },
      Error: null,
      StartedAt: null,
      FinishedAt: null,
    },
    {
      StepName: 'second',
      Status: 'Retrying',
      Attempt: 3,
      IdempotencyKey: 'k',
      ResponseStatus: 503,
      ResponseBody: null,
      Data: null,
      Error: 'busy',
      StartedAt: null,
      FinishedAt: null,
    },
  ],
}
const answered = (status: number, body = '{}', retryAfter: string | null = null): CallOutcome => ({
  kind: 'answered',
  status,
  body,
  retryAfter,
})

/** Runs a step whose calls are answered one after the other. */
async function outcomeOf(
  handler: (step: Step) => unknown,
  answers: readonly CallOutcome[] = [],
  change: Partial<StepDeps> = {},
) {
  const calls: CallRequest[] = []
  const outcome = await runStep(handler, claim, ['first', 'second'], {
    call: async (request) => {
      calls.push(request)
      return answers[calls.length - 1] ?? { kind: 'aborted' }
    },
    gateway: { url: 'http://gateway:7218', key: 'service-key' },
    settings: { demoApiUrl: 'http://demo', dataDir: '/data' },
    log: createLogger('test', 'silent'),
    traceparent: '00-a-b-01',
    signal: never,
    untilSent: never,
    isOnline: async () => true,
    now: () => 0,
    ...change,
  })
  return { outcome, calls }
}

describe('a step sees', () => {
  it('its run, the step before and finished steps by name', async () => {
    const { outcome } = await outcomeOf((step) => {
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
      expect(() => step.item('second')).toThrow('no finished item')
      step.complete({ y: 2 })
    })
    expect(outcome).toEqual({
      kind: 'completed',
      response: null,
      data: { y: 2 },
      endsRun: false,
    })
  })

  it('the data of the step before in its type', () => {
    const first = (step: Step<string>) =>
      step.execute({ url: step.initialData }, { parse: () => ({ Order: 'O-66' }) })
    const second = (step: Step<string, typeof first>) => step.complete(step.previous.data.Order)
    expectTypeOf<DataOf<typeof first>>().toEqualTypeOf<{ Order: string }>()
    expectTypeOf<DataOf<typeof second>>().toEqualTypeOf<string>()
    expectTypeOf<Step<string>['previous']>().toEqualTypeOf<null>()
  })
})

describe('a call of a step', () => {
  it('carries the idempotency key, each further call of the step one of its own', async () => {
    const { calls, outcome } = await outcomeOf(
      async (step) => {
        await step.execute({ url: 'http://x/a', query: { q: 'ä&b', n: 1 } })
        await step.execute({ url: 'http://x/b', method: 'post', body: { a: 1 } })
      },
      [answered(200), answered(201, 'done')],
    )
    expect(calls.map(({ headers }) => headers['idempotency-key'])).toEqual([
      'P/a%2Fb/2/second',
      'P/a%2Fb/2/second/2',
    ])
    expect(calls[0]?.url.href).toBe('http://x/a?q=%C3%A4%26b&n=1')
    expect(calls[1]).toMatchObject({
      method: 'POST',
      body: '{"a":1}',
      headers: { 'content-type': 'application/json', traceparent: '00-a-b-01' },
    })
    expect(outcome).toMatchObject({ kind: 'completed', response: { status: 201, body: 'done' } })
  })

  it('with a credential goes to the gateway with our key, and nowhere else', async () => {
    const send = (url: string) =>
      outcomeOf((step) => step.execute({ url }, { credential: 'ACC-42' }), [answered(200)])
    const { calls } = await send('/v3/company/42/query?query=x')
    expect(calls[0]?.url.href).toBe('http://gateway:7218/v3/company/42/query?query=x')
    expect(calls[0]?.headers['authorization']).toBe('Bearer service-key')
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
      expect(refused.outcome).toMatchObject({ kind: 'retry', errorClass: 'step_threw' })
    }
  })

  it.each([
    [answered(429, '', '3'), { kind: 'retry', errorClass: 'http_429', retryAfterMs: 3_000 }],
    [answered(500, 'x'), { kind: 'retry', errorClass: 'http_500', retryAfterMs: null }],
    [answered(404, 'x'), { kind: 'failed', errorClass: 'http_404' }],
    [answered(301), { kind: 'failed', errorClass: 'http_301' }],
    [answered(424), { kind: 'failed', errorClass: 'http_424' }],
    [{ kind: 'failed', reason: 'ECONNRESET' } as const, { kind: 'retry', errorClass: 'network' }],
    [
      { kind: 'too_large', status: 200 } as const,
      { kind: 'failed', errorClass: 'response_too_large' },
    ],
    [{ kind: 'aborted' } as const, { kind: 'released' }],
  ])(
    'that comes to %j ends the step, and what it does after changes nothing',
    async (call, expected) => {
      const { outcome } = await outcomeOf(
        async (step) => {
          await step.execute({ url: 'http://x/?secret=1' }).catch(() => {})
          step.complete()
          step.setStatus('Completed')
        },
        [call],
      )
      expect(outcome).toMatchObject(expected)
      expect(JSON.stringify(outcome)).not.toContain('secret')
    },
  )

  it('that failed while the internet is away charges nothing', async () => {
    const { outcome } = await outcomeOf(
      (step) => step.execute({ url: 'http://x/' }),
      [{ kind: 'failed', reason: 'ENETUNREACH' }],
      { isOnline: async () => false },
    )
    expect(outcome).toEqual({ kind: 'released' })
  })

  it('for a faulted credential waits for it', async () => {
    const { outcome } = await outcomeOf(
      (step) => step.execute({ url: '/v3/company/42/x' }, { credential: 'ACC-42' }),
      [answered(424)],
    )
    expect(outcome).toMatchObject({ kind: 'waiting', credential: 'ACC-42' })
  })
})

describe('the end of a step', () => {
  it('by fail() is a failure with the reason', async () => {
    const { outcome } = await outcomeOf((step) => step.fail('no such account'))
    expect(outcome).toMatchObject({
      kind: 'failed',
      errorClass: 'step_failed',
      error: 'no such account',
    })
  })

  it('by setStatus ends the run, and keeps what its call answered', async () => {
    const { outcome } = await outcomeOf(
      async (step) => {
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

  it('after a success by throwing is tried again', async () => {
    const { outcome } = await outcomeOf(
      async (step) => {
        await step.execute({ url: 'http://x/' })
        throw new RangeError('a bug')
      },
      [answered(200)],
    )
    expect(outcome).toMatchObject({ kind: 'retry', errorClass: 'step_threw' })
  })
})
