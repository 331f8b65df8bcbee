import assert from 'node:assert/strict'
import { test } from 'node:test'
import { startTestHost } from 'integration-host/testing'
import invoice from './invoice.ts'

const sale = { customer: 'Ada', amount: 66 }

test('for a sale, the process creates a customer and an invoice in the books of the company', async () => {
  await using host = await startTestHost({ processes: invoice })
  const company = await host.company('42')
  const run = await host.run('Invoice', 'sale-1', sale, { realm: '42' })
  run.toHaveStatus('Completed')
  company.toHaveCalled('POST /customer', { times: 1, body: { DisplayName: 'Ada' } })
  const CustomerRef = { value: run.data('customer') }
  company.toHaveCalled('POST /invoice', { body: { CustomerRef, Line: [{ Amount: 66 }] } })
})

test('the process creates the invoice after an outage of the accounting API', async () => {
  await using host = await startTestHost({ processes: invoice })
  const company = await host.company('42')
  await company.fault({ status: 503, calls: 10 })
  const run = await host.run('Invoice', 'sale-1', sale, { realm: '42' })
  assert.notEqual(run.status, 'Completed')
  await host.advance('1 hour')
  run.toHaveStatus('Completed')
})

test('the process rejects a sale without an amount', async () => {
  await using host = await startTestHost({ processes: invoice })
  await assert.rejects(host.run('Invoice', 'sale-1', { customer: 'Ada' }), /InitialData\.amount/)
})
