import { defineProcess, z } from 'integration-host'
import { startTestHost } from 'integration-host/testing'
import { expect, it } from 'vitest'

const exportInvoice = (onExisting: 'fail' | 'adopt' = 'fail') =>
  defineProcess('InvoiceExport', { input: z.object({ number: z.string() }) })
    .step('invoice', (step) =>
      step.createOnce(
        'Invoice',
        { Line: [{ Amount: 5, DetailType: 'SalesItemLineDetail' }] },
        { mark: { field: 'DocNumber', value: step.initialData.number }, onExisting },
      ),
    )
    .step('note', (step) =>
      step.update('Invoice', step.previous.data.Id, { PrivateNote: 'exported' }),
    )

const input = { number: "A-1'7" }

it.each(['before request', 'after request', 'before commit'] as const)(
  'step.createOnce creates one invoice although its worker is killed: %s',
  async (point) => {
    const process = exportInvoice()
    await using host = await startTestHost({ processes: process })
    const company = await host.company('42')
    host.kill(point, 'invoice')
    const run = await host.run(process, '1', input, { realm: '42' })
    await host.advance('10 minutes')
    run.toHaveStatus('Completed')
    expect(run.data('invoice')).toEqual({ Id: '1', SyncToken: '0' })
    const creations = company.calls.filter(({ body }) => JSON.stringify(body).includes('"Line"'))
    expect(creations).toHaveLength(1)
  },
)

it('step.createOnce asks the books only when a new invoice must be visible, if the response is lost', async () => {
  const process = exportInvoice()
  await using host = await startTestHost({ processes: process })
  const company = await host.company('42')
  await company.fault({ drop: 'after', calls: 1 })
  const run = await host.run(process, '1', input, { realm: '42' })
  await host.advance('2 minutes')
  company.toHaveCalled('GET /query', { times: 0 })
  await host.advance('10 minutes')
  run.toHaveStatus('Completed')
  company.toHaveCalled('GET /query', { times: 1 })
  expect(run.data('invoice')).toMatchObject({ Id: '1' })
})

it('a second run with the mark fails and names the first, or adopts its invoice', async () => {
  const process = exportInvoice()
  await using host = await startTestHost({ processes: process })
  await host.company('42')
  const first = await host.run(process, '1', input, { realm: '42' })
  first.toHaveStatus('Completed')
  const second = await host.run(process, '2', input, { realm: '42' })
  second.toHaveStatus('Failed')
  expect(second.error).toContain('InvoiceExport/1')
  const adopting = exportInvoice('adopt')
  await using other = await startTestHost({ processes: adopting })
  const company = await other.company('42')
  const [existing] = await company.books([{ Invoice: { DocNumber: input.number } }])
  const adopted = await other.run(adopting, '3', input, { realm: '42' })
  adopted.toHaveStatus('Completed')
  expect(adopted.data('invoice')).toMatchObject({ Id: existing.Id })
  company.toHaveCalled('POST /invoice', { times: 1 })
})

it('step.entry gives a later run the invoice of an earlier one', async () => {
  const create = exportInvoice()
  const remind = defineProcess('Remind', { input: z.string() }).step('note', async (step) => {
    const options = { process: 'InvoiceExport', transaction: step.initialData }
    return step.complete(await step.entry('Invoice', options))
  })
  await using host = await startTestHost({ processes: [create, remind] })
  await host.company('42')
  await host.run(create, '1', input, { realm: '42' })
  const found = await host.run(remind, 'a', '1', { realm: '42' })
  found.toHaveStatus('Completed')
  expect(found.data('note')).toBe('1')
  const missing = await host.run(remind, 'b', '9', { realm: '42' })
  missing.toHaveStatus('Failed')
  expect(missing.error).toContain('InvoiceExport/9')
})

it('an entity without a field that can be queried cannot be created once', () => {
  const process = defineProcess('TypeCheck').step('wrong', (step) => {
    // @ts-expect-error A time activity has no field that can be queried.
    const time = step.createOnce('TimeActivity', {}, { mark: { field: 'Name', value: 'x' } })
    // @ts-expect-error A customer is found by its name.
    void step.createOnce('Customer', {}, { mark: { field: 'DocNumber', value: 'x' } })
    return time
  })
  expect(process.stepNames).toEqual(['wrong'])
})
