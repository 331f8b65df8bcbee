import { defineProcess, type JsonInput, z } from 'integration-host'
import { type KillPoint, startTestHost } from 'integration-host/testing'
import { describe, expect, it } from 'vitest'

const SHOP = 'https://shop.test'
const post = (path: string, body: JsonInput = {}) =>
  ({ url: `${SHOP}/${path}`, method: 'POST', body }) as const

/** Reserves and charges, writes a note that stays, and ships. A bad address cannot be shipped to. */
const orders = defineProcess('Orders', { input: z.object({ address: z.string() }) })
  .step(
    'reserve',
    (step) =>
      step.execute(post('reservations'), {
        parse: (body) => z.object({ id: z.string() }).parse(body).id,
      }),
    { undo: (step) => step.execute(post('releases', { id: step.item('reserve').data })) },
  )
  .step('charge', (step) => step.execute(post('charges')), {
    undo: {
      run: (step) => step.execute(post('refunds', { after: step.previous.data })),
      async confirm(step) {
        const found = await step.find({ url: `${SHOP}/refunds/${step.transactionId}` })
        return found === null ? 'not_done' : step.complete()
      },
    },
  })
  .step('note', (step) => step.complete('written'))
  .step('gift', (step) => step.complete(), {
    when: () => false,
    undo: (step) => step.execute(post('gift-returns')),
  })
  .step('ship', (step) => {
    if (step.initialData.address === 'bad') step.fail('no such address', { undo: true })
    return step.execute(post('shipments'))
  })

async function startOrders(definition: typeof orders = orders) {
  const host = await startTestHost({ processes: definition })
  const shop = host
    .target(SHOP)
    .on('POST /reservations', { status: 200, body: { id: 'r-1' } })
    .on('POST /charges', { status: 200, body: {} })
    .on('POST /shipments', { status: 200, body: {} })
    .on('POST /releases', { status: 200, body: {} })
    .on('POST /refunds', { status: 200, body: {} })
    .on('GET /refunds/:id', () => ({
      status: paths(shop.calls).includes('POST /refunds') ? 200 : 404,
    }))
  return { host, shop, [Symbol.asyncDispose]: () => host[Symbol.asyncDispose]() }
}

const paths = (calls: readonly { readonly method: string; readonly path: string }[]): string[] =>
  calls.map(({ method, path }) => `${method} ${path}`)
const statuses = (items: readonly { StepName: string; Status: string }[]) =>
  Object.fromEntries(items.map(({ StepName, Status }) => [StepName, Status]))

describe('undo', () => {
  it('`fail` with undo takes back the completed steps, the last one first, and names the step without undo', async () => {
    await using fixture = await startOrders()
    const run = await fixture.host.run(orders, 'o-1', { address: 'bad' })
    run.toHaveStatus('Undone')
    expect(paths(fixture.shop.calls)).toEqual([
      'POST /reservations',
      'POST /charges',
      'POST /refunds',
      'POST /releases',
    ])
    fixture.shop.toHaveCalled('POST /refunds', { times: 1, key: `${run.key('charge')}/undo` })
    fixture.shop.toHaveCalled('POST /releases', { times: 1, key: `${run.key('reserve')}/undo` })
    expect(fixture.shop.calls.at(-1)?.body).toEqual({ id: 'r-1' })
    expect(statuses(run.view.Items)).toEqual({
      reserve: 'Undone',
      charge: 'Undone',
      note: 'Completed',
      gift: 'Skipped',
      ship: 'Failed',
    })
    expect(run.view.LastError).toBe('no such address; not undone, because they have no undo: note')
    expect(run.errorClass).toBe('step_failed')
    expect(run.view.Attempts.map(({ StepName, Outcome }) => [StepName, Outcome])).toEqual([
      ['reserve', 'completed'],
      ['charge', 'completed'],
      ['note', 'completed'],
      ['ship', 'step_failed'],
      ['charge', 'undone'],
      ['reserve', 'undone'],
    ])
  })

  it('a completed run is undone by an operator; it cannot be resumed, and a replay runs all steps again', async () => {
    await using fixture = await startOrders()
    const run = await fixture.host.run(orders, 'o-1', { address: 'good' })
    run.toHaveStatus('Completed')
    await run.undo()
    run.toHaveStatus('Undone')
    expect(statuses(run.view.Items)).toMatchObject({ reserve: 'Undone', charge: 'Undone' })
    expect([run.errorClass, run.error]).toEqual([
      null,
      'not undone, because they have no undo: note, ship',
    ])
    await expect(run.resume()).rejects.toThrow('can be resumed')
    await expect(run.undo()).rejects.toThrow('can be undone')
    await expect(run.replay({ fromStep: 'charge' })).rejects.toThrow('never completed')
    const replay = await run.replay()
    replay.toHaveStatus('Completed')
    fixture.shop.toHaveCalled('POST /reservations', { times: 1, key: replay.key('reserve') })
  })

  it('copied steps are undone too, with the keys of their run', async () => {
    await using fixture = await startOrders()
    const run = await fixture.host.run(orders, 'o-1', { address: 'good' })
    const replay = await run.replay({ fromStep: 'ship' })
    await replay.undo()
    replay.toHaveStatus('Undone')
    expect(statuses(replay.view.Items)).toMatchObject({ reserve: 'Undone', note: 'Copied' })
    fixture.shop.toHaveCalled('POST /releases', {
      times: 1,
      key: `${replay.key('reserve')}/undo`,
    })
  })

  it('an undo is retried as Undoing; if it fails for good, a resume goes on from there', async () => {
    await using fixture = await startOrders()
    fixture.shop.on('POST /refunds', [{ status: 503 }, { status: 422 }, { status: 200, body: {} }])
    const run = await fixture.host.run(orders, 'o-1', { address: 'bad' })
    expect([run.status, run.step, run.errorClass]).toEqual(['Undoing', 'charge', 'http_503'])
    expect(statuses(run.view.Items)).toMatchObject({ charge: 'Completed' })
    await fixture.host.advance('1 minute')
    expect([run.status, run.step, run.errorClass]).toEqual(['UndoFailed', 'charge', 'http_422'])
    await expect(run.undo()).rejects.toThrow('can be undone')
    await run.resume()
    run.toHaveStatus('Undone')
    fixture.shop.toHaveCalled('POST /refunds', { times: 3, key: `${run.key('charge')}/undo` })
    fixture.shop.toHaveCalled('POST /releases', { times: 1 })
  })

  it('a cancelled undo is UndoFailed, so that a resume does not run the steps forward', async () => {
    await using fixture = await startOrders()
    fixture.shop.on('POST /refunds', [{ status: 503 }, { status: 200, body: {} }])
    const run = await fixture.host.run(orders, 'o-1', { address: 'bad' })
    await run.cancel()
    expect([run.status, run.errorClass]).toEqual(['UndoFailed', 'undo_cancelled'])
    await run.resume()
    run.toHaveStatus('Undone')
    expect(paths(fixture.shop.calls)).not.toContain('POST /shipments')
  })

  it.each<[KillPoint, string, string[]]>([
    ['before request', 'charge', ['GET', 'POST']],
    ['after request', 'charge', ['POST', 'GET']],
    ['before commit', 'charge', ['POST', 'GET']],
    ['after commit', 'charge', ['POST']],
    ['before commit', 'ship', ['POST']],
    ['after commit', 'ship', ['GET', 'POST']],
  ])(
    'if the worker of an undo dies at the point "%s" of %s, the undo goes on after the lease',
    async (point, step, expected) => {
      await using fixture = await startOrders()
      const run = await fixture.host.run(orders, 'o-1', { address: 'good' })
      fixture.host.kill(point, step)
      await run.undo()
      expect(run.status).toBe('Undoing')
      await fixture.host.advance('2 minutes')
      run.toHaveStatus('Undone')
      const calls = fixture.shop.calls.filter(({ path }) => path.startsWith('/refunds'))
      expect(calls.map(({ method }) => method)).toEqual(expected)
      fixture.shop.toHaveCalled('POST /refunds', { times: 1, key: `${run.key('charge')}/undo` })
      fixture.shop.toHaveCalled('POST /releases', { times: 1 })
      expect(statuses(run.view.Items)).toMatchObject({ reserve: 'Undone', charge: 'Undone' })
    },
  )
})

/** Books, then pays at a target that may not respond; `confirm` finds out whether it has paid. */
const payments = (confirm: boolean, dispatch: 'message' | 'inline' = 'message') =>
  defineProcess('Payments', { onFailure: 'undo', retry: { maxAttempts: 1 }, dispatch })
    .step('book', (step) => step.complete('b-1'), {
      undo: (step) => step.execute(post('unbook', step.item('book').data)),
    })
    .step('pay', (step) => step.execute(post('payments')), {
      undo: (step) => step.execute(post('repay', step.item('pay').data)),
      ...(confirm && {
        async confirm(step) {
          const found = await step.find({ url: `${SHOP}/payments/${step.transactionId}` })
          return found === null ? 'not_done' : step.complete({ found: true })
        },
      }),
    })

async function startPayments(confirm: boolean, found: boolean, dispatch?: 'message' | 'inline') {
  const definition = payments(confirm, dispatch)
  const host = await startTestHost({ processes: definition })
  const shop = host
    .target(SHOP)
    .on('POST /payments', { status: 500 })
    .on('GET /payments/:id', { status: found ? 200 : 404 })
    .on('POST /repay', { status: 200, body: {} })
    .on('POST /unbook', { status: 200, body: {} })
  const run = await host.run(definition, 'p-1')
  return { host, shop, run, [Symbol.asyncDispose]: () => host[Symbol.asyncDispose]() }
}

describe('a step in doubt when the undo begins', () => {
  it.each(['message', 'inline'] as const)(
    'is asked with `confirm`: if it was done, it is completed and undone (%s)',
    async (dispatch) => {
      await using fixture = await startPayments(true, true, dispatch)
      fixture.run.toHaveStatus('Undone')
      expect(paths(fixture.shop.calls)).toEqual([
        'POST /payments',
        'GET /payments/p-1',
        'POST /repay',
        'POST /unbook',
      ])
      expect(fixture.shop.calls.at(-2)?.body).toEqual({ found: true })
      expect(statuses(fixture.run.view.Items)).toEqual({ book: 'Undone', pay: 'Undone' })
      expect(fixture.run.errorClass).toBe('http_500')
    },
  )

  it('is left if `confirm` finds that it was not done', async () => {
    await using fixture = await startPayments(true, false)
    fixture.run.toHaveStatus('Undone')
    expect(paths(fixture.shop.calls).slice(1)).toEqual(['GET /payments/p-1', 'POST /unbook'])
    expect(statuses(fixture.run.view.Items)).toEqual({ book: 'Undone', pay: 'Failed' })
    expect(fixture.run.isInDoubt).toBe(false)
  })

  it('makes the run UndoFailed without `confirm`, also after a resume', async () => {
    await using fixture = await startPayments(false, false)
    expect([fixture.run.status, fixture.run.errorClass]).toEqual(['UndoFailed', 'step_in_doubt'])
    expect(fixture.run.isInDoubt).toBe(true)
    await fixture.run.resume()
    expect([fixture.run.status, fixture.run.errorClass]).toEqual(['UndoFailed', 'step_in_doubt'])
    expect(paths(fixture.shop.calls)).toEqual(['POST /payments'])
  })
})

describe('onFailure: undo', () => {
  const approvals = defineProcess('Approvals', { onFailure: 'undo', deadlineSeconds: 86_400 })
    .step('draft', (step) => step.complete(), {
      undo: (step) => step.waitFor(3 * 86_400_000),
    })
    .event('approved', { data: z.boolean(), timeoutSeconds: 3_600 })
    .step('pay', (step) => step.waitFor(86_400_000))

  it('undoes a run whose event does not arrive in time, which then accepts no event and has no deadline', async () => {
    await using host = await startTestHost({ processes: approvals })
    const run = await host.run(approvals, 'a-1')
    run.toHaveStatus('Waiting')
    await host.advance('62 minutes')
    expect([run.status, run.step]).toEqual(['Undoing', 'draft'])
    await expect(run.signal('approved', true)).rejects.toThrow('the run is over')
    await host.advance('2 days')
    expect([run.status, run.step]).toEqual(['Undoing', 'draft'])
  })

  it('undoes a run whose deadline has passed', async () => {
    await using host = await startTestHost({ processes: approvals })
    const run = await host.run(approvals, 'a-1')
    await run.signal('approved', true)
    await host.advance('25 hours')
    expect([run.status, run.step]).toEqual(['Undoing', 'draft'])
  })
})

describe('a limit of a process', () => {
  it('an undo needs no slot', async () => {
    const limited = defineProcess('Limited', { concurrency: 1, input: z.string() })
      .step('one', (step) => step.complete(), { undo: (step) => step.complete() })
      .step('two', (step) =>
        step.initialData === 'busy' ? step.execute(post('long')) : step.complete(),
      )
    await using host = await startTestHost({ processes: limited })
    host.target(SHOP).on('POST /long', 'no response')
    const first = await host.run(limited, 'l-1', 'quick')
    const busy = await host.run(limited, 'l-2', 'busy')
    const next = await host.run(limited, 'l-3', 'quick')
    expect([busy.status, next.status]).toEqual(['Running', 'Waiting'])
    await first.undo()
    expect([first.status, next.status]).toEqual(['Undone', 'Waiting'])
  })
})
