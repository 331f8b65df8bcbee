import { defineProcess, ProviderChange } from 'integration-host'
import { startTestHost } from 'integration-host/testing'
import { describe, expect, it } from 'vitest'

const invoices = defineProcess('Invoices', {
  on: [{ provider: 'intuit', entity: 'Invoice', operations: ['create', 'update'] }],
  input: ProviderChange,
}).step('read', (step) => step.complete(step.initialData.id))

const deletions = defineProcess('Deletions', {
  on: [{ provider: 'intuit', entity: 'Invoice', operations: ['delete'] }],
  input: ProviderChange.refine(({ id }) => id !== '13', 'must not be 13'),
}).step('note', (step) => step.complete())

const startsAt = '2026-11-23T17:05:09Z'

describe('a change in the books of a company in a test host', () => {
  it('a change in a test host starts a run of each process whose `on` names the change', async () => {
    await using host = await startTestHost({ processes: [invoices, deletions], startsAt })
    await host.company('9130')
    const change = { realm: '9130', id: '129', operation: 'update' } as const
    const [run, ...others] = await host.change('Invoice', change)
    expect(others).toEqual([])
    run?.toHaveStatus('Completed')
    expect(run?.process).toBe('Invoices')
    expect(run?.id).toBe('Invoice-129@2026-11-23T17:05:09Z/9130')
    expect(run?.view).toMatchObject({
      Realm: '9130',
      InitialData: { entity: 'Invoice', id: '129', operation: 'update', realm: '9130' },
    })
  })

  it('a change that is reported twice to a test host starts one run, and a later change starts a second run', async () => {
    await using host = await startTestHost({ processes: invoices, startsAt })
    await host.company('9130')
    const change = { realm: '9130', id: '129', operation: 'update', at: startsAt } as const
    await host.change('Invoice', change)
    await host.change('Invoice', change)
    expect(await host.runs(invoices)).toHaveLength(1)
    await host.change('Invoice', { ...change, at: '2026-11-23T17:05:10Z' })
    expect(await host.runs(invoices)).toHaveLength(2)
  })

  it('changes of one object within debounceSeconds start one run in a test host, with the last change', async () => {
    const debounced = defineProcess('Debounced', {
      on: [{ provider: 'intuit', entity: 'Invoice', operations: ['update'], debounceSeconds: 30 }],
      input: ProviderChange,
    }).step('read', (step) => step.complete(step.initialData.changedAt))
    await using host = await startTestHost({ processes: debounced, startsAt })
    await host.company('9130')
    const change = { realm: '9130', id: '129', operation: 'update' } as const
    await host.change('Invoice', change)
    await host.advance('20 seconds')
    await host.change('Invoice', { ...change, id: '130' })
    const at = host.now.toISOString()
    const [run] = await host.change('Invoice', change)
    await host.advance('29 seconds')
    run?.toHaveStatus('Queued')
    await host.advance('2 seconds')
    run?.toHaveStatus('Completed')
    expect(run?.view.InitialData).toMatchObject({ id: '129', changedAt: at })
    // Both changes are reported a second time after the run has ended.
    await host.change('Invoice', { ...change, at: startsAt })
    await host.change('Invoice', { ...change, at })
    await host.advance('1 hour')
    expect((await host.runs(debounced)).map(({ id }) => id).toSorted()).toEqual([
      'Invoice-129@2026-11-23T17:05:09Z/9130',
      'Invoice-130@2026-11-23T17:05:29Z/9130',
    ])
  })

  it('if a change can start no run, a test host rejects the change and reports the reason', async () => {
    await using host = await startTestHost({ processes: [invoices, deletions], startsAt })
    await host.company('9130')
    const deletion = { realm: '9130', id: '13', operation: 'delete' } as const
    await expect(host.change('Invoice', deletion)).rejects.toThrow(
      /no run of Deletions: input_invalid: .*must not be 13/,
    )
    await expect(host.change('Bill', deletion)).rejects.toThrow(
      'no process names Bill.delete in on',
    )
    await expect(host.change('Invoice', { ...deletion, realm: '1' })).rejects.toThrow(
      "the company 1 is not connected: call host.company('1') first",
    )
  })
})
