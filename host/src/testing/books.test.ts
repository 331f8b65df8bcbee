import { defineProcess, z } from 'integration-host'
import { startTestHost } from 'integration-host/testing'
import { expect, it } from 'vitest'

const Unpaid = z.object({
  QueryResponse: z.object({
    Invoice: z
      .array(z.object({ Id: z.string(), Balance: z.number(), DocNumber: z.string() }))
      .default([]),
  }),
})

/** Uses the query and the operation `send` as Intuit documents them. */
const reminders = defineProcess('Reminders')
  .step('unpaid', (step) =>
    step.execute(
      {
        url: `/v3/company/${step.realm}/query`,
        query: { query: "select * from Invoice where Balance > '0' orderby DueDate" },
      },
      {
        credential: `ACC-${step.realm}`,
        parse: (body) => Unpaid.parse(body).QueryResponse.Invoice,
      },
    ),
  )
  .step('mails', async (step) => {
    for (const { Id } of step.previous.data)
      await step.execute(
        { url: `/v3/company/${step.realm}/invoice/${Id}/send`, method: 'POST' },
        { credential: `ACC-${step.realm}` },
      )
    return step.complete(step.previous.data.length)
  })

const invoice = (Address: string, Amount: number) => ({
  Invoice: { BillEmail: { Address }, Line: [{ Amount, DetailType: 'SalesItemLineDetail' }] },
})

it('a process that mails every unpaid invoice as Intuit documents it works with the sandbox', async () => {
  await using host = await startTestHost({ processes: reminders })
  const company = await host.company('42')
  const [open, paid, partly] = await company.books([
    invoice('ada@example.com', 66),
    invoice('ben@example.com', 100),
    invoice('cy@example.com', 50),
  ])
  const payment = (of: { readonly Id: string }, Amount: number) => ({
    Payment: {
      TotalAmt: Amount,
      Line: [{ Amount, LinkedTxn: [{ TxnId: of.Id, TxnType: 'Invoice' }] }],
    },
  })
  await company.books([payment(paid, 100), payment(partly, 20)])
  const run = await host.run(reminders, 'today', null, { realm: '42' })
  run.toHaveStatus('Completed')
  expect(run.data('unpaid')).toEqual([
    { Id: open.Id, Balance: 66, DocNumber: '1001' },
    { Id: partly.Id, Balance: 30, DocNumber: '1003' },
  ])
  expect(run.data('mails')).toBe(2)
  company.toHaveCalled('POST /invoice/:id/send', { times: 2 })
})

it('objects that a test adds to the books are created despite a fault, and are no calls of steps', async () => {
  await using host = await startTestHost({ processes: reminders })
  const company = await host.company('42')
  await company.fault({ status: 503 })
  const [customer] = await company.books([{ Customer: { DisplayName: 'Ada' } }])
  expect(customer).toMatchObject({ Id: '1', SyncToken: '0', Balance: 0 })
  expect(company.calls).toEqual([])
})

it('a test host rejects objects that the sandbox cannot create, and reports the reason', async () => {
  await using host = await startTestHost({ processes: reminders })
  const company = await host.company('42')
  const twice = [{ Customer: { DisplayName: 'Ada' } }, { Customer: { DisplayName: 'ada' } }]
  await expect(company.books(twice)).rejects.toThrow('objects[1]: Duplicate Name Exists Error')
  await expect(company.books([{ Spaceship: {} }])).rejects.toThrow('objects[0]: must have one')
})

it('a run that posts into closed books waits until the period is opened and the run is retried', async () => {
  const billing = defineProcess('Billing').step('invoice', (step) =>
    step.execute(
      {
        url: `/v3/company/${step.realm}/invoice`,
        method: 'POST',
        body: { TxnDate: '2026-10-01', Line: [{ Amount: 5, DetailType: 'SalesItemLineDetail' }] },
      },
      { credential: `ACC-${step.realm}` },
    ),
  )
  await using host = await startTestHost({ processes: billing })
  const company = await host.company('42')
  const closeBooks = (BookCloseDate: string | null) =>
    company.edit([{ entity: 'Preferences', change: { AccountingInfoPrefs: { BookCloseDate } } }])
  await closeBooks('2026-10-31')
  const run = await host.run(billing, 'late', null, { realm: '42' })
  run.toHaveStatus('Waiting')
  expect(run.error).toContain('until 2026-10-31')
  await host.advance('30 days')
  company.toHaveCalled('POST /invoice', { times: 1 })
  await closeBooks(null)
  await run.retry()
  run.toHaveStatus('Completed')
})

it('step.update changes members of an object and keeps the others', async () => {
  const dunning = defineProcess('Dunning', { input: z.string() }).step('note', (step) =>
    step.update('Invoice', step.initialData, { PrivateNote: 'reminded' }),
  )
  await using host = await startTestHost({ processes: dunning })
  const company = await host.company('42')
  const [open] = await company.books([invoice('ada@example.com', 66)])
  await company.edit([{ entity: 'Invoice', id: open.Id, change: { DocNumber: 'A-7' } }])
  const run = await host.run(dunning, 'one', open.Id, { realm: '42' })
  run.toHaveStatus('Completed')
  const [stored] = await company.edit([{ entity: 'Invoice', id: open.Id, change: {} }])
  expect(stored).toMatchObject({ DocNumber: 'A-7', PrivateNote: 'reminded', TotalAmt: 66 })
  company.toHaveCalled('POST /invoice', { times: 1 })
})
