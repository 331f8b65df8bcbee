import { defineProcess, z } from 'integration-host'
import { type KillPoint, startTestHost } from 'integration-host/testing'
import { describe, expect, it } from 'vitest'

const ERP = 'https://erp.test'
const PAGES = 3

/** Reads invoices page by page, and adds their amounts. */
const invoices = defineProcess('Invoices').step(
  'read',
  async (step) => {
    const { page, sum } = step.state ?? { page: 1, sum: 0 }
    const { data } = await step.execute(
      { url: `${ERP}/pages`, method: 'POST', body: { page } },
      { parse: (body) => z.object({ amount: z.number() }).parse(body).amount },
    )
    step.report({ done: page, of: PAGES, note: `page ${page}` })
    return page < PAGES
      ? step.repeat({ page: page + 1, sum: sum + data })
      : step.complete(sum + data)
  },
  { state: z.object({ page: z.number(), sum: z.number() }) },
)

async function startInvoices() {
  const host = await startTestHost({ processes: invoices })
  const erp = host.target(ERP).on('POST /pages', { status: 200, body: { amount: 10 } })
  return { host, erp, [Symbol.asyncDispose]: () => host[Symbol.asyncDispose]() }
}

describe('a step that repeats', () => {
  it('each round makes its call with a key of its own, and the last one completes the step', async () => {
    await using fixture = await startInvoices()
    const run = await fixture.host.run(invoices, 'i-1')
    run.toHaveStatus('Completed')
    expect(run.data('read')).toBe(30)
    for (const round of [0, 1, 2])
      fixture.erp.toHaveCalled('POST /pages', { times: 1, key: run.key('read', round) })
    expect(run.key('read', 2)).toBe('Invoices/i-1/0/read/round-2')
    expect(run.view.Items).toMatchObject([
      {
        Round: 2,
        State: { page: 3, sum: 20 },
        Report: { Done: 3, Of: 3, Note: 'page 3' },
        IdempotencyKey: run.key('read', 2),
      },
    ])
    expect(run.view.Attempts.map(({ Attempt, Outcome }) => [Attempt, Outcome])).toEqual([
      [1, 'repeated'],
      [1, 'repeated'],
      [1, 'completed'],
    ])
  })

  it('a resume continues in the round that has failed; a replay begins with round 0 again', async () => {
    await using fixture = await startInvoices()
    fixture.erp.on('POST /pages', [
      { status: 200, body: { amount: 10 } },
      { status: 422 },
      { status: 200, body: { amount: 10 } },
    ])
    const run = await fixture.host.run(invoices, 'i-1')
    run.toHaveStatus('Failed')
    await run.resume()
    run.toHaveStatus('Completed')
    fixture.erp.toHaveCalled('POST /pages', { times: 2, key: run.key('read', 1) })
    expect(run.data('read')).toBe(30)
    const replay = await run.replay()
    replay.toHaveStatus('Completed')
    fixture.erp.toHaveCalled('POST /pages', { times: 1, key: replay.key('read', 0) })
  })

  it('the next round begins after `afterMs`, and the run is Running until then', async () => {
    const waits = defineProcess('Waits').step(
      'wait',
      (step) => (step.round < 2 ? step.repeat(null, { afterMs: 3_600_000 }) : step.complete()),
      { state: z.null() },
    )
    await using host = await startTestHost({ processes: waits })
    const run = await host.run(waits, 'w-1')
    expect([run.status, run.view.Items[0]?.Round]).toEqual(['Running', 1])
    await host.advance('59 minutes')
    expect(run.view.Items[0]?.Round).toBe(1)
    await host.advance('2 minutes')
    expect([run.status, run.view.Items[0]?.Round]).toEqual(['Running', 2])
    await host.advance('1 hour')
    run.toHaveStatus('Completed')
  })

  it('a step that never ends fails in its last round', async () => {
    const endless = defineProcess('Endless').step('loop', (step) => step.repeat(step.round), {
      state: z.number(),
      maxRounds: 20,
    })
    await using host = await startTestHost({ processes: endless })
    const run = await host.run(endless, 'e-1')
    expect([run.status, run.errorClass, run.view.Items[0]?.Round]).toEqual([
      'Failed',
      'rounds_used_up',
      19,
    ])
    expect(run.view.Attempts).toHaveLength(11)
  })

  it.each<[KillPoint, number[]]>([
    ['before request', [1, 1, 1]],
    ['after request', [1, 2, 1]],
    ['before commit', [1, 2, 1]],
    ['after commit', [1, 1, 1]],
  ])(
    'if the worker of a round dies at the point "%s", the run continues in this round with its state and key',
    async (point, expected) => {
      await using fixture = await startInvoices()
      let kills = 0
      fixture.erp.on('POST /pages', ({ body }) => {
        if ((body as { page: number }).page === 2 && kills++ === 0) fixture.host.kill(point, 'read')
        return { status: 200, body: { amount: 10 } }
      })
      const run = await fixture.host.run(invoices, 'i-1')
      await fixture.host.advance('2 minutes')
      run.toHaveStatus('Completed')
      expect(run.data('read')).toBe(30)
      const keys = fixture.erp.calls.map(({ key }) => key)
      const times = [0, 1, 2].map(
        (round) => keys.filter((key) => key === run.key('read', round)).length,
      )
      expect(times).toEqual(expected)
    },
  )
})

/** Asks for an approval if the amount is large, and pays. */
const bills = defineProcess('Bills', { input: z.object({ amount: z.number() }) })
  .step('draft', (step) => step.complete(step.initialData.amount))
  .step('ask', (step) => step.execute({ url: `${ERP}/questions`, method: 'POST' }), {
    when: ({ initialData }) => initialData.amount > 100,
  })
  .step('pay', (step) => step.complete(`paid ${step.previous.outcome}`))
  .step('notify', (step) => step.complete(), {
    when: ({ previous }) => previous.outcome === 'skipped',
  })
  .step('archive', (step) => step.complete(), { when: () => false })

describe('a step with a condition', () => {
  it('a step is skipped if its condition is false, also the last ones of a process', async () => {
    await using host = await startTestHost({ processes: bills })
    const erp = host.target(ERP).on('POST /questions', { status: 200, body: {} })
    const run = await host.run(bills, 'b-1', { amount: 7 })
    run.toHaveStatus('Completed')
    expect(erp.calls).toHaveLength(0)
    expect(
      Object.fromEntries(run.view.Items.map(({ StepName, Status }) => [StepName, Status])),
    ).toEqual({
      archive: 'Skipped',
      ask: 'Skipped',
      draft: 'Completed',
      notify: 'Skipped',
      pay: 'Completed',
    })
    expect([run.data('ask'), run.data('pay')]).toEqual([null, 'paid skipped'])
    expect(run.view.Attempts.map(({ StepName }) => StepName)).toEqual(['draft', 'pay'])

    const replay = await run.replay({ fromStep: 'pay' })
    replay.toHaveStatus('Completed')
    expect(replay.data('pay')).toBe('paid skipped')

    const large = await host.run(bills, 'b-2', { amount: 700 })
    large.toHaveStatus('Completed')
    erp.toHaveCalled('POST /questions', { times: 1 })
    expect(large.data('pay')).toBe('paid completed')
  })

  it('a run does not wait for an event whose condition is false', async () => {
    const approvals = defineProcess('Approvals', { input: z.object({ amount: z.number() }) })
      .event('approved', { data: z.boolean(), when: ({ initialData }) => initialData.amount > 100 })
      .step('pay', (step) => step.complete([step.previous.outcome, step.previous.data]))
      .event('receipt')
    await using host = await startTestHost({ processes: approvals })
    const small = await host.run(approvals, 'a-1', { amount: 7 })
    expect(small.view.WaitingFor).toBe('event:receipt')
    expect(small.data('pay')).toEqual(['skipped', null])
    await expect(small.signal('approved', true)).rejects.toThrow('has gone on without the event')
    await small.signal('receipt')
    small.toHaveStatus('Completed')
    await expect(small.signal('approved', true)).rejects.toThrow('the run is over')
    const large = await host.run(approvals, 'a-2', { amount: 700 })
    expect(large.view.WaitingFor).toBe('event:approved')
    await large.signal('approved', true)
    expect(large.view.WaitingFor).toBe('event:receipt')
    expect(large.data('pay')).toEqual(['completed', true])
  })

  it.each<KillPoint>(['before commit', 'after commit'])(
    'if the worker dies at the point "%s" of a skipped step, the step stays skipped and the run continues',
    async (point) => {
      await using host = await startTestHost({ processes: bills })
      host.target(ERP).on('POST /questions', { status: 200, body: {} })
      host.kill(point, 'ask')
      const run = await host.run(bills, 'b-1', { amount: 7 })
      expect(run.status).toBe('Running')
      await host.advance('2 minutes')
      run.toHaveStatus('Completed')
      expect(run.data('ask')).toBeNull()
    },
  )
})
