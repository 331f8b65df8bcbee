import { describe, expect, expectTypeOf, it } from 'vitest'
import { z } from 'zod'
import { answered, outcomeOf } from '../../test-support/step-outcome.ts'
import type { CallOutcome } from './http-call.ts'
import type { Step } from './step.ts'

const lost = { kind: 'failed', reason: 'ECONNRESET', isSent: true } as const

describe('a call that a step makes with fetch', () => {
  it('fetch() returns the response to the step, which can call waitFor(), fail() or complete() depending on the status', async () => {
    const poll = async (step: Step) => {
      const report = await step.fetch({ url: 'http://x/report' })
      if (report.status === 202) return step.waitFor(Number(report.header('Retry-After')) * 1_000)
      if (!report.ok) return step.fail(`the report ended with ${report.status}`)
      const data = report.parse(() => ({ rows: 3 }))
      expectTypeOf(data).toEqualTypeOf<{ rows: number }>()
      return step.complete(data)
    }
    const pending = { ...answered(202, ''), headers: ['Retry-After', '30'] } as CallOutcome
    expect((await outcomeOf(poll, [pending])).outcome).toEqual({
      kind: 'later',
      delayMs: 30_000,
      error:
        'the step called waitFor and starts again later; GET http://x/report responded with 202',
    })
    expect((await outcomeOf(poll, [answered(200)])).outcome).toMatchObject({
      kind: 'completed',
      data: { rows: 3 },
      response: { status: 200, body: '{}' },
    })
    expect((await outcomeOf(poll, [answered(404, 'gone')])).outcome).toMatchObject({
      kind: 'failed',
      errorClass: 'step_failed',
      error: 'the report ended with 404',
      response: { status: 404, body: 'gone' },
    })
  })

  it.each([301, 400, 404, 408, 429, 500, 503])(
    'fetch() does not end the step after a response with the status %d',
    async (status) => {
      const { outcome } = await outcomeOf(
        async (step: Step) => {
          const { ok, body } = await step.fetch({ url: 'http://x/' })
          return step.complete({ ok, body })
        },
        [answered(status, 'text', '5')],
      )
      expect(outcome).toMatchObject({
        kind: 'completed',
        data: { ok: false, body: 'text' },
      })
      expect(outcome).not.toHaveProperty('isInDoubt')
    },
  )

  it('fetch() does not complete the step after a 2xx response', async () => {
    const { outcome } = await outcomeOf(
      (step: Step) => step.fetch({ url: 'http://x/' }),
      [answered(200)],
    )
    expect(outcome).toMatchObject({
      kind: 'failed',
      errorClass: 'status_not_set',
      error: expect.stringMatching(/: return the result of execute, complete, .* or call fail$/),
    })
  })

  it('fetch() ends the attempt if it gets no response, and leaves the step in doubt only if the method is unsafe', async () => {
    const send = (method: string) =>
      outcomeOf((step: Step) => step.fetch({ url: 'http://x/', method }), [lost])
    const { outcome } = await send('GET')
    expect(outcome).toMatchObject({ kind: 'retry', errorClass: 'no_answer' })
    expect(outcome).not.toHaveProperty('isInDoubt')
    expect((await send('POST')).outcome).toMatchObject({ kind: 'retry', isInDoubt: true })
  })

  it.each([
    [424, { kind: 'waiting', credential: 'ACC-42' }],
    [429, { kind: 'held', errorClass: 'http_429', delayMs: 7_000 }],
    [401, { kind: 'retry', errorClass: 'http_401' }],
  ])(
    'fetch() ends the attempt as execute() does if the credential cannot be used (status %d)',
    async (status, expected) => {
      const { outcome } = await outcomeOf(
        async (step: Step) => {
          await step.fetch({ url: '/v3/company/42/x' }, { credential: 'ACC-42' })
          step.complete()
        },
        [answered(status, '', '7')],
      )
      expect(outcome).toMatchObject(expected)
    },
  )

  it('fetch() does not use the idempotency key of the step, so that confirm finds the call that execute() makes', async () => {
    const { calls } = await outcomeOf(
      async (step: Step) => {
        await step.fetch({ url: 'http://x/' })
        await step.fetch({ url: 'http://x/', method: 'POST' })
        return step.execute({ url: 'http://x/', method: 'POST' })
      },
      [answered(404), answered(200), answered(200)],
    )
    expect(calls.map(({ headers }) => headers['idempotency-key'])).toEqual([
      'P/a%2Fb/2/second/fetch-1',
      'P/a%2Fb/2/second/fetch-2',
      'P/a%2Fb/2/second',
    ])
  })

  it.each([
    ['is not JSON', '', () => 1],
    ['has more members than are parsed', `[${'0,'.repeat(500_000)}0]`, () => 1],
    ['is not what parse expects', '{}', () => JSON.parse('{') as unknown],
  ])('a step fails as response_invalid if the body that it parses %s', async (_, body, parse) => {
    const { outcome } = await outcomeOf(
      async (step: Step) => {
        const reply = await step.fetch({ url: 'http://x/' })
        reply.parse(parse)
        step.complete()
      },
      [answered(200, body)],
    )
    expect(outcome).toMatchObject({ kind: 'failed', errorClass: 'response_invalid' })
    expect(outcome).not.toHaveProperty('isInDoubt')
  })

  it('the error of a body that a schema rejects contains the path and the message of each problem', async () => {
    const Invoice = z.object({ Invoice: z.object({ Id: z.string(), Balance: z.number() }) })
    const { outcome } = await outcomeOf(
      (step: Step) =>
        step.execute({ url: 'http://x/' }, { parse: (body) => Invoice.parse(body).Invoice.Id }),
      [answered(200, '{"Invoice":{"Id":7}}')],
    )
    expect(outcome).toMatchObject({
      errorClass: 'response_invalid',
      error:
        'GET http://x/ responded with 200, and the body is not what the step expects: body.Invoice.Id: Invalid input: expected string, received number; body.Invoice.Balance: Invalid input: expected number, received undefined',
    })
  })

  it('the error of a body that parse rejects contains the name and the message of what parse threw', async () => {
    const { outcome } = await outcomeOf(
      (step: Step) =>
        step.execute(
          { url: 'http://x/' },
          {
            parse: () => {
              throw new RangeError('no rows')
            },
          },
        ),
      [answered(200)],
    )
    expect(outcome).toMatchObject({ error: expect.stringMatching(/expects: RangeError: no rows$/) })
  })
})
