import { defineProcess, z } from 'integration-host'
import { startTestHost } from 'integration-host/testing'
import { describe, expect, it } from 'vitest'

const ERP = 'https://erp.test'

const nightly = defineProcess('Nightly', {
  input: z.object({ days: z.int() }),
  schedules: [
    {
      name: 'nightly',
      cron: '0 2 * * *',
      timeZone: 'America/New_York',
      input: { days: 1 },
    },
  ],
}).step('report', (step) => step.execute({ url: `${ERP}/reports`, method: 'POST' }))

const perCompany = defineProcess('PerCompany', {
  schedules: [{ name: 'monthly', cron: '0 6 1 * *', each: 'company' }],
}).step('name', (step) => step.complete(step.realm))

/** Returns the processor time that this process has used since `startedAt`. */
const cpuMs = (startedAt: NodeJS.CpuUsage): number => {
  const { user, system } = process.cpuUsage(startedAt)
  return (user + system) / 1_000
}

describe('schedules in a test host', () => {
  it('advancing the clock by a day runs the nightly process at its time', async () => {
    await using host = await startTestHost({
      processes: nightly,
      startsAt: '2026-11-20T12:00:00Z',
    })
    const erp = host.target(ERP).on('POST /reports', { status: 202 })
    await host.advance('1 hour')
    erp.toHaveCalled('POST /reports', { times: 0 })
    await host.advance('1 day')
    const [run, ...others] = await host.runs(nightly)
    expect(others).toEqual([])
    run?.toHaveStatus('Completed')
    expect(run?.id).toBe('nightly@2026-11-21T07:00:00Z')
    expect(run?.view.InitialData).toEqual({ days: 1 })
    expect(run?.view.CreatedAt).toBe('2026-11-21T07:00:00.000Z')
    erp.toHaveCalled('POST /reports', { times: 1 })
  })

  it('a test of thirty nightly runs with ten retries each takes less than four seconds of processor time', async () => {
    const startedAt = process.cpuUsage()
    await using host = await startTestHost({
      processes: nightly,
      startsAt: '2026-11-20T12:00:00Z',
    })
    const erp = host.target(ERP).on('POST /reports', { status: 503 })
    await host.advance('1 day')
    const [failed] = await host.runs(nightly)
    failed?.toHaveStatus('Failed')
    erp.toHaveCalled('POST /reports', { times: 10 })
    erp.on('POST /reports', { status: 202 })
    await host.advance('29 days')
    expect(await host.runs(nightly)).toHaveLength(30)
    expect(cpuMs(startedAt)).toBeLessThan(4_000)
  })

  it('a schedule for each company starts one run for each company that is connected at the scheduled time', async () => {
    await using host = await startTestHost({
      processes: perCompany,
      startsAt: '2026-11-20T12:00:00Z',
    })
    await host.company('1001')
    const ended = await host.company('1002')
    await host.company('1003')
    await ended.disconnect()
    await host.advance('31 days')
    const runs = await host.runs(perCompany)
    expect(runs.map(({ id }) => id).toSorted()).toEqual([
      'monthly@2026-12-01T06:00:00Z/1001',
      'monthly@2026-12-01T06:00:00Z/1003',
    ])
    for (const run of runs) expect(run.data('name')).toBe(run.view.Realm)
  })
})
