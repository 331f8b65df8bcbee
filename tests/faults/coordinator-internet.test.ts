import { eventually } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { startSystem } from '../support/system.ts'
import { openBooks } from './support/books.ts'
import { dyingMain, logged, orders, queueBulk } from './support/coordinators.ts'
import { isFaultRun } from './support/scale.ts'
import { startTarget } from './support/target.ts'

const ORDERS = 2_000
const FLAPS = 20
/** So few that the orders last for every flap. */
const CALLS_BETWEEN = 50

describe.runIf(isFaultRun)('a process that requires the internet, which comes and goes', () => {
  it('charges no attempt and fails no transaction', { timeout: 300_000 }, async ({ annotate }) => {
    await using target = await startTarget()
    target.latencyMs = 50
    await using system = await startSystem([])
    const coordinator = system.start(
      'coordinator',
      {
        DEMO_API_URL: target.url,
        INTERNET_PROBES: target.probe,
        PROBE_MS: '100',
        PREFETCH: '16',
        LOCAL_PULL_SECONDS: '1',
        REMOTE_PULL_SECONDS: '2',
      },
      dyingMain,
    )
    await system.ready('coordinator')
    await using books = await openBooks(system)
    // With the internet the targets go as well: the calls under way end without an answer.
    target.intercept = ({ order }, response) => {
      if (target.isOnline || order === '') return false
      response.destroy()
      return true
    }
    const wanted = orders(ORDERS, 'i')
    await queueBulk(system, coordinator.url, wanted)
    let atWork = 0
    for (let flap = 1; flap <= FLAPS; flap += 1) {
      const before = target.calls.length
      await eventually(() => expect(target.calls.length).toBeGreaterThan(before + CALLS_BETWEEN))
      if ((await books.count()).completed < ORDERS) atWork += 1
      target.isOnline = false
      await eventually(() =>
        expect(logged(coordinator, 'coordinator cancellation complete')).toBe(flap),
      )
      target.isOnline = true
      await eventually(() => expect(logged(coordinator, 'coordinator starting')).toBe(flap + 1))
    }
    expect(atWork).toBe(FLAPS)
    target.latencyMs = 0
    await eventually(
      async () => expect(await books.count()).toEqual({ headers: ORDERS, completed: ORDERS }),
      { seconds: 60 },
    )
    await eventually(async () => expect(await books.waiting()).toEqual({}))
    const [row] = await books.sql<{ charged: number; failed: number }[]>`
      select (count(*) filter (where "Attempt" > 1))::int as charged,
        (select count(*)::int from "Order_Header" where "Status" = 'Failed') as failed
      from "Order_Attempt"`
    expect(row).toEqual({ charged: 0, failed: 0 })
    const again = target.calls.length - 2 * ORDERS
    await annotate(
      `internet lost and back ${FLAPS} times under ${ORDERS} orders: attempts charged 0, transactions failed 0; ${again} calls that lost their answer were made again`,
      'figure',
    )
  })
})
