import { defineProcess, z } from 'integration-host'
import { type KillPoint, startTestHost } from 'integration-host/testing'
import { describe, expect, it } from 'vitest'

const collect = defineProcess('Collect', { input: z.object({ invoice: z.string() }) })
  .step('note', (step) => step.complete(step.initialData.invoice))
  .change('paid', {
    entity: 'Invoice',
    id: (step) => step.item('note').data,
    until: (invoice) => invoice['Balance'] === 0,
    timeoutSeconds: 60 * 86_400,
  })
  .step('thank', (step) => step.complete(step.previous.data['DocNumber'] ?? null))

/** Deletes the invoice, as another program does. */
const remove = defineProcess('Remove', { input: z.object({ Id: z.string() }) }).step(
  'delete',
  (step) =>
    step.execute(
      {
        url: `/v3/company/${step.realm}/invoice`,
        method: 'POST',
        query: { operation: 'delete' },
        body: { Id: step.initialData.Id, SyncToken: '0' },
      },
      { credential: `ACC-${step.realm}` },
    ),
)

const INVOICE = { Invoice: { Line: [{ Amount: 66, DetailType: 'SalesItemLineDetail' }] } }
const payment = (TxnId: string) => ({
  Payment: { TotalAmt: 66, Line: [{ Amount: 66, LinkedTxn: [{ TxnId, TxnType: 'Invoice' }] }] },
})
const lenient = defineProcess('Lenient', { input: z.object({ invoice: z.string() }) })
  .change('paid', {
    entity: 'Invoice',
    id: (step) => step.initialData.invoice,
    until: (invoice) => invoice['Balance'] === 0,
    timeoutSeconds: 3_600,
    onTimeout: 'continue',
    onDeleted: 'continue',
  })
  .step('end', (step) => step.complete(step.previous.data?.['Id'] ?? step.previous.outcome))
const READ = 'GET /invoice/:id'

async function startWaiting(process: typeof collect | typeof lenient = collect) {
  const host = await startTestHost({ processes: [process, remove] })
  const company = await host.company('42')
  const [invoice] = await company.books([INVOICE])
  const run = await host.run(process, 'c-1', { invoice: invoice.Id }, { realm: '42' })
  return { host, company, invoice, run, [Symbol.asyncDispose]: () => host[Symbol.asyncDispose]() }
}

describe('a run that waits for a change in the books', () => {
  it('waits until the object satisfies the condition, and gets the object', async () => {
    await using at = await startWaiting()
    const { host, company, invoice, run } = at
    expect([run.status, run.view.WaitingFor]).toEqual(['Waiting', 'change:paid'])
    await host.advance('3 days')
    company.toHaveCalled(READ, { times: 1 }) // nothing has happened, so nothing is read
    await host.change('Invoice', { realm: '42', id: invoice.Id, operation: 'emailed' })
    expect(run.status).toBe('Waiting')
    company.toHaveCalled(READ, { times: 2 })
    await host.advance('1 second')
    await company.books([payment(invoice.Id)])
    await host.change('Invoice', { realm: '42', id: invoice.Id, operation: 'update' })
    run.toHaveStatus('Completed')
    expect(run.data('paid')).toMatchObject({ Id: invoice.Id, Balance: 0 })
    expect(run.data('thank')).toBe(invoice['DocNumber'])
    company.toHaveCalled(READ, { times: 3 })
  })

  it('goes on at once if the object already satisfies the condition', async () => {
    await using host = await startTestHost({ processes: collect })
    const company = await host.company('42')
    const [invoice] = await company.books([INVOICE])
    await company.books([payment(invoice.Id)])
    const run = await host.run(collect, 'c-1', { invoice: invoice.Id }, { realm: '42' })
    expect(run.status).toBe('Completed')
    company.toHaveCalled(READ, { times: 1 })
  })

  it('a change of a payment counts as a change of the invoice that it pays', async () => {
    await using at = await startWaiting()
    const [paid] = await at.company.books([payment(at.invoice.Id)])
    await at.host.change('Payment', { realm: '42', id: paid.Id, operation: 'create' })
    expect(at.run.status).toBe('Completed')
  })

  it('twenty runs that wait for one object cost one read for each change', async () => {
    await using at = await startWaiting()
    const { host, company, invoice } = at
    for (let n = 2; n <= 20; n += 1)
      await host.run(collect, `c-${n}`, { invoice: invoice.Id }, { realm: '42' })
    company.toHaveCalled(READ, { times: 20 }) // each has read the object when it began to wait
    await company.books([payment(invoice.Id)])
    await host.change('Invoice', { realm: '42', id: invoice.Id, operation: 'update' })
    company.toHaveCalled(READ, { times: 21 })
    const statuses = (await host.runs(collect)).map(({ status }) => status)
    expect(statuses).toEqual(Array.from({ length: 20 }, () => 'Completed'))
  })

  it('two changes within a second, which have the same id, cause two reads', async () => {
    await using at = await startWaiting()
    const { host, company, invoice, run } = at
    const change = { realm: '42', id: invoice.Id, operation: 'update' } as const
    await host.change('Invoice', change)
    await company.books([payment(invoice.Id)])
    await host.change('Invoice', change)
    await host.change('Invoice', change)
    expect(run.status).toBe('Waiting')
    await host.advance('3 seconds')
    run.toHaveStatus('Completed')
    company.toHaveCalled(READ, { times: 3 })
  })

  it('a read that the provider refuses is repeated, and no change is lost', async () => {
    await using at = await startWaiting()
    const { host, company, invoice, run } = at
    await company.books([payment(invoice.Id)])
    await company.fault({ status: 503, calls: 3 })
    await host.change('Invoice', { realm: '42', id: invoice.Id, operation: 'update' })
    expect(run.status).toBe('Waiting')
    await host.advance('1 hour')
    run.toHaveStatus('Completed')
  })

  it.each([
    [collect, 'Failed', 'object_deleted'],
    [lenient, 'Completed', null],
  ] as const)(
    'a deleted object fails the run as `object_deleted`; with `continue` its data is null (%#)',
    async (process, status, errorClass) => {
      await using at = await startWaiting(process)
      const { host, invoice, run } = at
      await host.run(remove, 'r-1', { Id: invoice.Id }, { realm: '42' })
      await host.change('Invoice', { realm: '42', id: invoice.Id, operation: 'delete' })
      expect([run.status, run.errorClass]).toEqual([status, errorClass])
      if (status === 'Completed') expect(run.data('paid')).toBeNull()
    },
  )

  it('with `onFailure: undo`, a deleted object undoes the run', async () => {
    const undone = defineProcess('Undone', {
      input: z.object({ invoice: z.string() }),
      onFailure: 'undo',
    })
      .step('note', (step) => step.complete(step.initialData.invoice), {
        undo: (step) => step.complete(),
      })
      .change('paid', { entity: 'Invoice', id: (step) => step.previous.data, until: () => false })
    await using host = await startTestHost({ processes: undone })
    const company = await host.company('42')
    await company.books([INVOICE])
    const run = await host.run(undone, 'u-1', { invoice: '99' }, { realm: '42' })
    expect([run.status, run.errorClass]).toEqual(['Undone', 'object_deleted'])
  })

  it('a run whose time is over goes on without the object, or fails', async () => {
    await using at = await startWaiting(lenient)
    await at.host.advance('61 minutes')
    at.run.toHaveStatus('Completed')
    expect(at.run.data('end')).toBe('timed_out')
    await using strict = await startWaiting()
    await strict.host.advance('61 days')
    expect([strict.run.status, strict.run.errorClass]).toEqual(['Failed', 'event_timeout'])
  })

  it('the object that was merged into another one counts as changed', async () => {
    await using at = await startWaiting()
    const { host, invoice, run } = at
    await host.run(remove, 'r-1', { Id: invoice.Id }, { realm: '42' })
    const merge = { realm: '42', id: '77', operation: 'merge', deletedId: invoice.Id } as const
    await host.change('Invoice', merge)
    expect([run.status, run.errorClass]).toEqual(['Failed', 'object_deleted'])
  })

  it('a cancelled run is left alone by later changes, and a resumed one waits and reads once more', async () => {
    await using at = await startWaiting()
    const { host, company, invoice, run } = at
    await run.cancel()
    await company.books([payment(invoice.Id)])
    await host.change('Invoice', { realm: '42', id: invoice.Id, operation: 'update' })
    expect(run.status).toBe('Cancelled')
    await run.resume()
    run.toHaveStatus('Completed')
  })

  it.each<[KillPoint, string]>([
    ['before commit', 'place'],
    ['after commit', 'place'],
    ['before request', 'look'],
    ['after request', 'look'],
    ['before commit', 'look'],
    ['after commit', 'look'],
  ])(
    'if a worker dies at the point "%s" of the %s, the run still sees the change, once',
    async (point, where) => {
      await using host = await startTestHost({ processes: collect })
      const company = await host.company('42')
      const [invoice] = await company.books([INVOICE])
      if (where === 'place') host.kill(point, 'paid')
      const run = await host.run(collect, 'c-1', { invoice: invoice.Id }, { realm: '42' })
      await host.advance('2 minutes')
      expect(run.status).toBe('Waiting')
      await company.books([payment(invoice.Id)])
      if (where === 'look') host.kill(point)
      await host.change('Invoice', { realm: '42', id: invoice.Id, operation: 'update' })
      await host.advance('2 minutes')
      run.toHaveStatus('Completed')
      expect(run.view.Items.map(({ Status }) => Status)).toEqual([
        'Completed',
        'Completed',
        'Completed',
      ])
      expect(run.data('thank')).toBe(invoice['DocNumber'])
    },
  )

  it('`until` that throws fails the run, and the object is not in the error', async () => {
    const broken = defineProcess('Broken').change('paid', {
      entity: 'Invoice',
      id: () => '1',
      until: (): boolean => {
        throw new Error('no such member')
      },
    })
    await using host = await startTestHost({ processes: broken })
    const company = await host.company('42')
    await company.books([INVOICE])
    const run = await host.run(broken, 'b-1', null, { realm: '42' })
    expect([run.status, run.errorClass, run.view.LastError]).toEqual([
      'Failed',
      'step_threw',
      'until: Error: no such member',
    ])
  })

  it.each([
    ['realm_missing', {}, '1'],
    ['step_threw', { realm: '42' }, '../1'],
  ] as const)('a run that names no object fails as %s', async (errorClass, options, id) => {
    const wrong = defineProcess('Wrong').change('paid', {
      entity: 'Invoice',
      id: (): string => id,
      until: (): boolean => true,
    })
    await using host = await startTestHost({ processes: wrong })
    await host.company('42')
    const run = await host.run(wrong, 'w-1', null, options)
    expect([run.status, run.errorClass]).toEqual(['Failed', errorClass])
  })
})
