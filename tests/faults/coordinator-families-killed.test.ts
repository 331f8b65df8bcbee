/**
 * Kills a coordinator at every point at which a run starts children, a child ends, or the parent goes on or is cancelled.
 * Another coordinator must then complete each child and the parent once, or cancel all of them.
 */
import { eventually } from '@integration-host/shared/test-support/eventually'
import { listeningUrl } from '@integration-host/shared/test-support/start-process'
import { describe, expect, it } from 'vitest'
import { openDatabase } from '../support/faults/database-assertions.ts'
import { post, queueOrder, startAnotherCoordinator } from '../support/faults/coordinators.ts'
import { coordinatorWithFailpoints, diedAt } from '../support/processes/failpoints.ts'
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
      const url = await listeningUrl(doomed)
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
      const url = await listeningUrl(doomed)
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
