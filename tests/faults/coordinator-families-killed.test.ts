/**
 * Kills a coordinator at every point at which a run starts children, a child ends, or the parent goes on or is cancelled.
 * Another coordinator must then complete each child and the parent once, or cancel all of them.
 */
import { eventually } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { openDatabase } from '../support/faults/database-assertions.ts'
import {
  orders,
  post,
  queueOrder,
  queueOrders,
  readyUrl,
  startAnotherCoordinator,
} from '../support/faults/coordinators.ts'
import { killRepeatedly } from '../support/faults/order-load.ts'
import { scale } from '../support/faults/scale.ts'
import { coordinatorWithFailpoints, diedAt } from '../support/processes/failpoints.ts'
import { startStepTarget } from '../support/fakes/step-target.ts'
import { startSystem } from '../support/system.ts'

const env = { LOCAL_PULL_SECONDS: '0.2', REMOTE_PULL_SECONDS: '0.3' }
const CHILD = 'a/OrderProcess.report'

describe('a coordinator that is killed while a run has children', () => {
  it.for([
    { failpoint: 'storing children', id: 'a', stored: 0 },
    { failpoint: 'children stored', id: 'a', stored: 3 },
    { failpoint: 'child ended', id: `${CHILD}/1`, stored: 3 },
    { failpoint: 'child ended', id: `${CHILD}/3`, stored: 3 },
    { failpoint: 'joining', id: 'a', stored: 3 },
    { failpoint: 'joined', id: 'a', stored: 3 },
  ])(
    'at the point "$failpoint" of $id: another coordinator completes each child and the parent once',
    { timeout: 180_000 },
    async ({ failpoint, id, stored }) => {
      await using system = await startSystem([])
      const dies = { ...env, PROCESS: 'family', DIES_AT: failpoint, DIES_WITH: id }
      const doomed = startAnotherCoordinator(system, dies, coordinatorWithFailpoints)
      const url = await readyUrl(doomed)
      await using database = await openDatabase(system)
      const { sql } = database
      await eventually(async () => expect(await queueOrder(system, url, 'a')).toBe(202))
      await diedAt(doomed, failpoint)
      const [found] = await sql`
        select count(*)::int as count from "Order_Header" where "ParentTransactionID" = 'a'`
      expect(found?.['count']).toBe(stored)
      await database.expireLeases()
      await sql`update "Order_Header" set "NextSweepAt" = now() where "CompletedAt" is null and "WaitingFor" is null`
      startAnotherCoordinator(system, { ...env, PROCESS: 'family' }, coordinatorWithFailpoints)
      await eventually(async () =>
        expect(await database.countRuns()).toEqual({ runs: 4, completed: 4 }),
      )
      const attempts = await sql`
        select "TransactionID", "StepName", count(*)::int as count from "Order_Attempt"
        where "Outcome" = 'completed' group by 1, 2 order by 1, 2`
      expect(attempts.map((row) => row['count'])).toEqual([1, 1, 1, 1, 1])
      const [sum] = await sql`select "Data" from "Order_Item" where "StepName" = 'csv'`
      expect(sum?.['Data']).toBe(3)
    },
  )

  it.for(['cancelling children', 'children cancelled'])(
    'at the point "%s" of a cancelled parent: another coordinator cancels all children',
    { timeout: 180_000 },
    async (failpoint) => {
      await using system = await startSystem([])
      const dies = { ...env, PROCESS: 'held', DIES_AT: failpoint, DIES_WITH: 'a' }
      const doomed = startAnotherCoordinator(system, dies, coordinatorWithFailpoints)
      const url = await readyUrl(doomed)
      await using database = await openDatabase(system)
      const { sql } = database
      await eventually(async () => expect(await queueOrder(system, url, 'a')).toBe(202))
      await eventually(async () => {
        const rows = await sql`select from "Order_Header" where "WaitingFor" = 'children:report'`
        expect(rows).toHaveLength(1)
      })
      await post(system, url, '/a/cancel', {})
      await diedAt(doomed, failpoint)
      startAnotherCoordinator(system, { ...env, PROCESS: 'held' }, coordinatorWithFailpoints)
      await eventually(async () => {
        const rows = await sql`select from "Order_Header" where "Status" = 'Cancelled'`
        expect(rows).toHaveLength(4)
      })
    },
  )
})

describe('coordinators that are killed while many runs have children', () => {
  const parents = scale({ test: 20, faults: 200 })
  const children = scale({ test: 20, faults: 50 })
  const kills = scale({ test: 3, faults: 10 })

  it(
    'each child and each parent is completed once',
    { timeout: scale({ test: 180_000, faults: 600_000 }) },
    async ({ annotate }) => {
      await using system = await startSystem([])
      await using target = await startStepTarget()
      target.latencyMs = scale({ test: 500, faults: 100 })
      const settings = {
        DEMO_API_URL: target.url,
        LOCAL_PULL_SECONDS: '1',
        REMOTE_PULL_SECONDS: '2',
        LEASE_MS: '3000',
        // Few steps are in flight, so that children are left at the last kill.
        PREFETCH: scale({ test: '4', faults: '16' }),
        PROCESS: 'families',
        CHILDREN: String(children),
      }
      const start = () => startAnotherCoordinator(system, settings, coordinatorWithFailpoints)
      system.start('coordinator', settings, coordinatorWithFailpoints)
      await system.ready('coordinator')
      await using database = await openDatabase(system)
      await queueOrders(system, system.url('coordinator'), orders(parents, 'p'))
      const phase = { isOver: true, isBackendUnavailable: false }
      const killed = await killRepeatedly(start, { kills, killEveryMs: 1_000 }, phase)
      expect(killed.killsDuringSteps).toBeGreaterThan(0)
      const before = await database.countRuns()
      target.latencyMs = 0
      start()
      const runs = parents * (1 + children)
      await eventually(
        async () => expect(await database.countRuns()).toEqual({ runs, completed: runs }),
        { seconds: scale({ test: 90, faults: 300 }) },
      )
      const { sql } = database
      const results = await sql`
        select "Process", "StepName", count(*)::int as attempts,
          count(distinct "TransactionID")::int as runs
        from "Order_Attempt" where "Outcome" = 'completed' group by 1, 2 order by 1, 2`
      const once = (Process: string, StepName: string, count: number) => ({
        Process,
        StepName,
        attempts: count,
        runs: count,
      })
      expect([...results]).toEqual([
        once('OrderLine', 'line', parents * children),
        once('OrderProcess', 'csv', parents),
        once('OrderProcess', 'order', parents),
      ])
      // A call is repeated only if its worker was killed, with the same key.
      const [lost] = await sql`
        select count(*)::int as count from "Order_Attempt" where "Outcome" <> 'completed'`
      expect(new Set(target.calls.map(({ idempotencyKey }) => idempotencyKey)).size).toBe(
        parents * children,
      )
      expect(target.calls.length - parents * children).toBeLessThanOrEqual(lost?.['count'])
      const sums = await sql`
        select "Data", count(*)::int as count from "Order_Item" where "StepName" = 'csv' group by 1`
      expect([...sums]).toEqual([{ Data: children, count: parents }])
      const families = await sql`
        select distinct "Stored", "Pending", "Waiting", "Failed" from "Order_Family"`
      expect([...families]).toEqual([{ Stored: children, Pending: 0, Waiting: 0, Failed: 0 }])
      await annotate(
        `${parents} parents with ${children} children each, ${killed.kills} SIGKILLs (${killed.killsDuringSteps} with steps in flight, ` +
          `${runs - before.completed} runs left at the last one, ${target.calls.length - parents * children} calls repeated): each child and each parent completed once`,
        'measurement',
      )
    },
  )
})
