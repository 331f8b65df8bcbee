import { defineProcess } from 'integration-host'
import { startTestHost } from 'integration-host/testing'
import { describe, expect, it } from 'vitest'

const ERP = 'https://erp.test'

const ordersWith = (limits: { readonly perSecond?: number; readonly concurrent?: number }) =>
  defineProcess('Orders', { targets: { erp: { url: ERP, ...limits } } }).step('order', (step) =>
    step.execute({ target: 'erp', path: '/orders', method: 'POST' }),
  )

describe('the limits of a target in a test host', () => {
  it('a call to a limited target waits, on the clock of the test host, until the limit allows the call', async () => {
    const orders = ordersWith({ perSecond: 1 })
    await using host = await startTestHost({ processes: orders })
    const erp = host.target(ERP).on('POST /orders', { status: 201 })
    const first = await host.run(orders, 'o-1')
    const second = await host.run(orders, 'o-2')
    first.toHaveStatus('Completed')
    second.toHaveStatus('Running')
    await host.advance(900)
    second.toHaveStatus('Running')
    await host.advance(200)
    second.toHaveStatus('Completed')
    expect(erp.calls).toHaveLength(2)
  })

  it('a test host defers a call that would have to wait too long, and does not count the attempt', async () => {
    const orders = ordersWith({ perSecond: 0.05 })
    await using host = await startTestHost({ processes: orders })
    const erp = host.target(ERP).on('POST /orders', { status: 201 })
    await host.run(orders, 'o-1')
    const run = await host.run(orders, 'o-2')
    expect([run.status, run.errorClass, run.attempt]).toEqual(['Retrying', 'target_held', 0])
    await host.advance('19 seconds')
    expect(erp.calls).toHaveLength(1)
    await host.advance('2 seconds')
    run.toHaveStatus('Completed')
  })

  it('the slot of a call whose worker has died becomes free when the slot expires', async () => {
    const orders = ordersWith({ concurrent: 1 })
    await using host = await startTestHost({ processes: orders })
    const erp = host.target(ERP).on('POST /orders', { status: 201 })
    host.kill('after request')
    const killed = await host.run(orders, 'o-1')
    const other = await host.run(orders, 'o-2')
    // The call of the dead worker has a time limit of one minute.
    await host.advance('1 minute')
    expect(other.errorClass).toBe('target_held')
    expect(erp.calls).toHaveLength(1)
    await host.advance('30 seconds')
    for (const run of [killed, other]) run.toHaveStatus('Completed')
    expect(erp.calls).toHaveLength(3)
  })
})
