import { eventually } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { startSystem } from '../support/system.ts'
import { openDatabase } from '../support/faults/database-assertions.ts'
import { countLogLines, orders, queueOrders } from '../support/faults/coordinators.ts'
import { coordinatorWithFailpoints } from '../support/processes/failpoints.ts'
import { isFaultRun } from '../support/faults/scale.ts'
import { stepQueuesOf } from '../support/faults/step-queues.ts'
import { startStepTarget } from '../support/fakes/step-target.ts'

const ORDERS = 2_000
const INTERRUPTIONS = 20
/**
 * Number of calls between two interruptions. It is low, so that orders are still unfinished at the last interruption.
 */
const CALLS_BETWEEN = 50

describe.runIf(isFaultRun)('a business process that requires the internet', () => {
  it(
    'interruptions of the internet connection neither increment attempt counts nor fail transactions',
    { timeout: 300_000 },
    async ({ annotate }) => {
      await using target = await startStepTarget()
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
        coordinatorWithFailpoints,
      )
      await system.ready('coordinator')
      await using database = await openDatabase(system)
      const queues = stepQueuesOf(system)
      // The targets are unreachable during an interruption too, so the calls in flight end without a response.
      target.intercept = ({ order }, response) => {
        if (target.isOnline || order === '') return false
        response.destroy()
        return true
      }
      const wanted = orders(ORDERS, 'i')
      await queueOrders(system, coordinator.url, wanted)
      let interruptedDuringWork = 0
      for (let interruption = 1; interruption <= INTERRUPTIONS; interruption += 1) {
        const before = target.calls.length
        await eventually(() => expect(target.calls.length).toBeGreaterThan(before + CALLS_BETWEEN))
        if ((await database.countRuns()).completed < ORDERS) interruptedDuringWork += 1
        target.isOnline = false
        await eventually(() =>
          expect(countLogLines(coordinator, 'coordinator cancellation complete')).toBe(
            interruption,
          ),
        )
        target.isOnline = true
        await eventually(() =>
          expect(countLogLines(coordinator, 'coordinator starting')).toBe(interruption + 1),
        )
      }
      expect(interruptedDuringWork).toBe(INTERRUPTIONS)
      target.latencyMs = 0
      await eventually(
        async () => expect(await database.countRuns()).toEqual({ runs: ORDERS, completed: ORDERS }),
        { seconds: 60 },
      )
      await eventually(async () => expect(await queues.ready()).toEqual({}))
      const [row] = await database.sql<{ charged: number; failed: number }[]>`
      select (count(*) filter (where "Attempt" > 1))::int as charged,
        (select count(*)::int from "Order_Header" where "Status" = 'Failed') as failed
      from "Order_Attempt"`
      expect(row).toEqual({ charged: 0, failed: 0 })
      const repeated = target.calls.length - 2 * ORDERS
      await annotate(
        `internet interrupted ${INTERRUPTIONS} times under ${ORDERS} orders: 0 attempt counts incremented, 0 transactions failed; ${repeated} calls that lost their response were repeated`,
        'measurement',
      )
    },
  )
})
