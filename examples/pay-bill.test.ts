import { startTestHost } from 'integration-host/testing'
import { expect, it } from 'vitest'
import payBill from './pay-bill.ts'

const BANK = 'https://bank.test'

async function startBill(amount: number) {
  const host = await startTestHost({ processes: payBill })
  const company = await host.company('42')
  const [vendor] = await company.books([{ Vendor: { DisplayName: 'Acme' } }])
  const bank = host.target(BANK).on('POST /payments', { status: 201, body: {} })
  bank.on('GET /statement', [
    { status: 200, body: { found: false, pages: 2 } },
    { status: 200, body: { found: true, pages: 2 } },
  ])
  const data = { vendor: vendor.Id, amount, bank: BANK }
  const run = await host.run(payBill, 'bill-1', data, { realm: '42' })
  return { host, company, bank, run, [Symbol.asyncDispose]: () => host[Symbol.asyncDispose]() }
}

it('a small bill is paid without approval, and the run ends when the books say that it is paid', async () => {
  await using at = await startBill(50)
  const { host, company, run } = at
  expect([run.status, run.view.WaitingFor]).toEqual(['Waiting', 'change:cleared'])
  expect(run.data('statement')).toBe(2)
  const [payment] = await company.books([
    {
      BillPayment: {
        PayType: 'Check',
        TotalAmt: 50,
        Line: [
          { Amount: 50, LinkedTxn: [{ TxnId: run.data('draft') as string, TxnType: 'Bill' }] },
        ],
      },
    },
  ])
  await host.change('BillPayment', { realm: '42', id: payment.Id, operation: 'create' })
  expect(run.status).toBe('Completed')
})

it('a large bill is paid after its approval', async () => {
  await using at = await startBill(50_000)
  at.bank.toHaveCalled('POST /payments', { times: 0 })
  await at.run.signal('approved', { approved: true })
  at.bank.toHaveCalled('POST /payments', { times: 1 })
  expect(at.run.view.WaitingFor).toBe('change:cleared')
})

it('a refused bill is removed from the books again', async () => {
  await using at = await startBill(50_000)
  await at.run.signal('approved', { approved: false, note: 'unknown vendor' })
  expect(at.run.status).toBe('Undone')
  at.bank.toHaveCalled('POST /payments', { times: 0 })
  at.company.toHaveCalled('POST /bill', { times: 1, query: { operation: 'delete' } })
})
