import { startTestHost } from 'integration-host/testing'
import { expect, it } from 'vitest'
import invoiceProcess from './invoice-process.ts'

const sale = { customer: 'Rosewood', amount: 66, notify: 'https://mail.test/messages' }

it('the invoice process creates a customer and an invoice, and sends one message even if its worker dies after sending it', async () => {
  await using host = await startTestHost({ processes: invoiceProcess })
  const company = await host.company('42')
  const mail = host
    .target('https://mail.test')
    .on('POST /messages', { status: 202 })
    .on('GET /messages', { status: 200 })
  host.kill('after request', 'notice')
  const run = await host.run('InvoiceProcess', 'sale-1', sale, { realm: '42' })
  await host.advance('2 minutes')
  run.toHaveStatus('Completed')
  expect([run.data('customer'), run.data('invoice')]).toEqual(['1', '2'])
  company.toHaveCalled('POST /customer', { times: 1, body: { DisplayName: 'Rosewood' } })
  const body = { CustomerRef: { value: '1' }, Line: [{ Amount: 66 }] }
  company.toHaveCalled('POST /invoice', { times: 1, body })
  const text = 'Invoice 2 for Rosewood'
  mail.toHaveCalled('POST /messages', { times: 1, key: run.key('notice'), body: { text } })
  mail.toHaveCalled('GET /messages', { times: 1, query: { key: run.key('notice') } })
})

it('the coordinator rejects a transaction whose data is not a sale, and lists the invalid fields', async () => {
  await using host = await startTestHost({ processes: invoiceProcess })
  const queued = host.run('InvoiceProcess', 'sale-1', { ...sale, amount: 0, notify: 'nowhere' })
  await expect(queued).rejects.toThrow(/InitialData\.amount: .*\n.*InitialData\.notify: /)
})
