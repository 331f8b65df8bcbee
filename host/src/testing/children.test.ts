import { defineProcess, z } from 'integration-host'
import { startTestHost } from 'integration-host/testing'
import { describe, expect, it } from 'vitest'

const ERP = 'https://erp.test'

const line = defineProcess('Line', { input: z.object({ no: z.number() }) }).step('post', (step) =>
  step.execute(
    { url: `${ERP}/lines/${step.initialData.no}`, method: 'POST' },
    { parse: (body) => z.object({ amount: z.number() }).parse(body).amount },
  ),
)
const order = defineProcess('Order', { input: z.array(z.number()) })
  .forEach('lines', line, {
    items: (step) => step.initialData.map((no) => ({ id: no, data: { no } })),
    concurrent: 1,
  })
  .step('sum', async (step) => {
    let sum = 0
    for await (const child of step.children('lines')) sum += child.data ?? 0
    return step.complete(sum)
  })

describe('a run with children in the test kit', () => {
  it('the children call their target, and the parent reads their data', async () => {
    await using host = await startTestHost({ processes: [order, line] })
    const erp = host
      .target(ERP)
      .on('POST /lines/1', { status: 200, body: { amount: 10 } })
      .on('POST /lines/2', { status: 200, body: { amount: 20 } })
    const run = await host.run(order, 'o-1', [1, 2])
    run.toHaveStatus('Completed')
    expect(run.data('lines')).toEqual({ total: 2, completed: 2, failedCount: 0, failed: [] })
    expect(run.data('sum')).toBe(30)
    erp.toHaveCalled('POST /lines/2', { times: 1 })
  })

  it('the parent fails if a child fails', async () => {
    await using host = await startTestHost({ processes: [order, line] })
    host.target(ERP).on('POST /lines/1', { status: 400, body: {} })
    const run = await host.run(order, 'o-2', [1])
    run.toHaveStatus('Failed')
    expect(run.view).toMatchObject({ ErrorClass: 'children_failed' })
  })
})
