import { defineProcess, z } from 'integration-host'
import { startTestHost } from 'integration-host/testing'
import { describe, expect, it } from 'vitest'

const Customer = z.object({ Customer: z.object({ Id: z.string() }) })

const customers = defineProcess('Customers', { input: z.object({ name: z.string() }) })
  .step('create', (step) =>
    step.execute(
      {
        url: `/v3/company/${step.realm}/customer`,
        method: 'POST',
        body: { DisplayName: step.initialData.name },
      },
      { credential: `ACC-${step.realm}`, parse: (body) => Customer.parse(body).Customer.Id },
    ),
  )
  .step('read', (step) =>
    step.execute(
      { url: `/v3/company/${step.realm}/customer/${step.previous.data}` },
      { credential: `ACC-${step.realm}`, parse: (body) => z.json().parse(body) },
    ),
  )

async function startWithCompany() {
  const host = await startTestHost({ processes: customers })
  const company = await host.company('42', { name: 'Rosewood' })
  const run = (id: string) => host.run(customers, id, { name: 'Ada' }, { realm: '42' })
  return { host, company, run, [Symbol.asyncDispose]: () => host[Symbol.asyncDispose]() }
}

/** Returns the processor time that this process has used since `startedAt`. Other processes of the machine do not affect it. */
const cpuMs = (startedAt: NodeJS.CpuUsage): number => {
  const { user, system } = process.cpuUsage(startedAt)
  return (user + system) / 1_000
}

describe('a company of a test host', () => {
  it('steps in a test host write to and read from the books of a company at the sandbox provider', async () => {
    await using fixture = await startWithCompany()
    const run = await fixture.run('c-1')
    run.toHaveStatus('Completed')
    expect(run.data('read')).toMatchObject({ Customer: { DisplayName: 'Ada' } })
    fixture.company.toHaveCalled('POST /customer', {
      times: 1,
      key: run.key('create'),
      body: { DisplayName: 'Ada' },
    })
    fixture.company.toHaveCalled('GET /customer/:id', { times: 1 })
    expect(run.view.Attempts[0]?.ResponseId).toMatch(/^1-/)
  })

  it('the gateway of a test host repeats a call whose connection was lost, and the provider creates the entity once', async () => {
    await using fixture = await startWithCompany()
    await fixture.company.fault({ drop: 'after' })
    const run = await fixture.run('c-1')
    await fixture.host.advance('1 second')
    run.toHaveStatus('Completed')
    fixture.company.toHaveCalled('POST /customer', { times: 2 })
    expect(run.data('create')).toBe(run.view.Items[1]?.ResponseBody?.match(/"Id":"(\d+)"/)?.[1])
    expect(run.view.Attempts.map(({ Outcome }) => Outcome)).toEqual(['completed', 'completed'])
  })

  it('the gateway of a test host refreshes a token that the provider rejects', async () => {
    await using fixture = await startWithCompany()
    await fixture.company.expireToken()
    const run = await fixture.run('c-1')
    run.toHaveStatus('Completed')
    expect(run.view.Attempts).toHaveLength(2)
  })

  it('a step in a test host is retried after a minute if the provider rejected its call with 429', async () => {
    await using fixture = await startWithCompany()
    await fixture.company.fault({ status: 429 })
    const run = await fixture.run('c-1')
    expect([run.status, run.errorClass]).toEqual(['Retrying', 'http_429'])
    await fixture.host.advance('59 seconds')
    run.toHaveStatus('Retrying')
    await fixture.host.advance('2 seconds')
    run.toHaveStatus('Completed')
    expect(run.view.Items[0]?.Attempt).toBe(1)
  })

  it('a run in a test host waits while its company is disconnected, and continues after the company is connected again', async () => {
    await using fixture = await startWithCompany()
    await fixture.company.disconnect()
    const run = await fixture.run('c-1')
    run.toHaveStatus('Waiting')
    await fixture.host.advance('3 days')
    run.toHaveStatus('Waiting')
    await fixture.company.reconnect()
    expect(run.status).toBe('Completed')
  })

  it('a run in a test host fails if no credential of its company is stored', async () => {
    await using host = await startTestHost({ processes: customers })
    const run = await host.run(customers, 'c-1', { name: 'Ada' }, { realm: '43' })
    expect([run.status, run.errorClass]).toEqual(['Failed', 'http_404'])
  })

  it('a test host that sends all notices before the end of a grant uses less than two seconds of processor time', async () => {
    const startedAt = process.cpuUsage()
    await using host = await startTestHost({
      processes: customers,
      startsAt: '2026-11-20T08:00:00Z',
    })
    const company = await host.company('42', { grantEndsIn: '100 days' })
    expect(company.notices).toEqual([])
    await host.advance('11 days')
    expect(company.notices.map(({ days }) => days)).toEqual([90])
    // The daily refresh sends the notice. This refresh runs at this time of day.
    expect(company.notices[0]?.at.toISOString()).toMatch(/^2026-12-01T07/)
    await host.advance('88 days')
    expect(company.notices.map(({ days }) => days)).toEqual([90, 30, 7])
    const run = await host.run(customers, 'c-1', { name: 'Ada' }, { realm: '42' })
    run.toHaveStatus('Completed')
    expect(cpuMs(startedAt)).toBeLessThan(2_000) // 0.6 to 1.1 s; polling all the time would need hours
  })

  it('a test host rejects a fault that the sandbox does not know, and reports the reason', async () => {
    await using fixture = await startWithCompany()
    await expect(fixture.company.fault({ status: 7 })).rejects.toThrow(/rejected POST .*status/)
  })
})
