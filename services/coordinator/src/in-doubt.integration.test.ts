import { fileURLToPath } from 'node:url'
import { until } from '@integration-host/shared/test-support/eventually'
import { startProcess } from '@integration-host/shared/test-support/start-process'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { chargeProcess } from '../test-support/charge-process.ts'
import {
  type Backends,
  environmentOf,
  openBackends,
  startFixture,
} from '../test-support/fixture.ts'
import { respondWith, startTarget } from '../test-support/fake-target.ts'

const main = fileURLToPath(new URL('../test-support/charge-main.ts', import.meta.url))
const LEASE_MS = 600

describe('a call whose outcome is unknown', () => {
  let backends: Backends
  beforeAll(async () => {
    backends = await openBackends('real', { Charge: ['charge', 'receipt'] })
  })
  afterAll(() => backends[Symbol.asyncDispose]())

  const startCharging = () =>
    startProcess([main], {
      env: { ...environmentOf(backends), LOG_LEVEL: 'error', LEASE_MS: String(LEASE_MS) },
    })

  it.each([
    ['had taken effect is not repeated', respondWith(200, '{"charge":"C-1"}'), 1],
    ['had no effect is repeated with the same idempotency key', respondWith(404), 2],
  ])('after the coordinator was killed, a call in flight that %s', async (_, found, charges) => {
    const sql = backends.database?.sql
    if (sql === undefined) throw new Error('no database')
    await using target = await startTarget()
    // The target makes the charge but never responds, so the coordinator that the test kills cannot know the outcome.
    target.on('/charges', (request, response) =>
      target.callsTo('/charges').length === 1
        ? undefined
        : respondWith(201, '{"charge":"C-1"}')(request, response),
    )
    target.on('/charges/by-key', found)

    const id = crypto.randomUUID()
    const charging = startCharging()
    try {
      await (await backends.openSource())[Symbol.asyncDispose]() // opening the source creates the tables
      await sql`insert into "Order_Header" ("Process", "TransactionID", "InitialData")
        values ('Charge', ${id}, ${JSON.stringify(target.url)}::text::jsonb)`
      await until(() => target.callsTo('/charges').length === 1)
    } finally {
      await charging.stop('SIGKILL')
    }

    await using host = await startFixture(backends, {
      processes: [chargeProcess],
      times: { leaseMs: LEASE_MS, sweepMs: 100 },
    })
    const run = await host.reached(id, 'Completed')
    expect(run.Items).toMatchObject([
      { StepName: 'charge', Status: 'Completed', Data: { charge: 'C-1' } },
      { StepName: 'receipt', Status: 'Completed', Data: 'C-1' },
    ])
    expect(run.Attempts.map(({ StepName, Outcome }) => `${StepName} ${Outcome}`)).toEqual([
      'charge in_doubt',
      'charge completed',
      'receipt completed',
    ])
    const keys = target.callsTo('/charges').map(({ headers }) => headers['idempotency-key'])
    expect(keys).toEqual(Array(charges).fill(`Charge/${id}/0/charge`))
    expect(target.callsTo('/charges/by-key').map(({ query }) => query['key'])).toEqual([
      `Charge/${id}/0/charge`,
    ])
  })

  it('after the connection of a call broke, the same coordinator calls confirm() instead of repeating the call', async () => {
    await using host = await startFixture(backends, { processes: [chargeProcess] })
    host.target.on('/charges', (request) => void request.socket.destroy())
    host.target.on('/charges/by-key', respondWith(200, '{"charge":"C-1"}'))
    const id = crypto.randomUUID()
    await host.queue(id, host.target.url)
    const run = await host.reached(id, 'Completed')
    expect(run.Attempts.map(({ Outcome }) => Outcome)).toEqual([
      'no_answer',
      'completed',
      'completed',
    ])
    expect(host.target.callsTo('/charges')).toHaveLength(1)
  })
})
