/**
 * Kills a coordinator at every point at which a step is skipped or repeated. For each point the test checks the remaining
 * row. Then another coordinator must complete the run, with each round once.
 */
import { eventually } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { openDatabase } from '../support/faults/database-assertions.ts'
import { queueOrder, readyUrl, startAnotherCoordinator } from '../support/faults/coordinators.ts'
import { coordinatorWithFailpoints, diedAt } from '../support/processes/failpoints.ts'
import { startSystem } from '../support/system.ts'

interface CrashPoint {
  readonly failpoint: string
  readonly row: { readonly StepName: string; readonly Round: number | null }
}

// After a skipped step the worker keeps its lease. So the row already names the next step, which has no item yet.
const crashPoints: readonly CrashPoint[] = [
  { failpoint: 'skipping', row: { StepName: 'report', Round: null } },
  { failpoint: 'skipped', row: { StepName: 'csv', Round: null } },
  { failpoint: 'repeating', row: { StepName: 'csv', Round: 1 } },
  { failpoint: 'repeated', row: { StepName: 'csv', Round: 2 } },
]

describe('a coordinator that is killed while a step is skipped or repeated', () => {
  it.for(crashPoints)(
    'at the point "$failpoint": another coordinator completes the run, with each round once',
    { timeout: 180_000 },
    async ({ failpoint, row }) => {
      await using system = await startSystem([])
      const env = {
        PROCESS: 'rounds',
        LOCAL_PULL_SECONDS: '0.2',
        REMOTE_PULL_SECONDS: '0.3',
      }
      const dies = { ...env, SWEEP_MS: '60000', DIES_AT: failpoint, DIES_WITH: 'a' }
      const doomed = startAnotherCoordinator(system, dies, coordinatorWithFailpoints)
      const url = await readyUrl(doomed)
      await using database = await openDatabase(system)
      const { sql } = database
      await eventually(async () => expect(await queueOrder(system, url, 'a')).toBe(202))
      await diedAt(doomed, failpoint)
      const [found] = await sql`
        select h."Status", h."StepName", i."Round" from "Order_Header" h left join "Order_Item" i
          using ("Process", "TransactionID", "ReplayID", "StepName") where h."TransactionID" = 'a'`
      expect({ ...found }).toEqual({ Status: 'Running', ...row })
      await database.expireLeases()
      await sql`update "Order_Header" set "NextSweepAt" = now() where "TransactionID" = 'a'`
      // It may recover the lease before it is connected to RabbitMQ. Then its sweeper publishes the step.
      startAnotherCoordinator(system, env, coordinatorWithFailpoints)
      await eventually(async () =>
        expect(await database.countRuns()).toEqual({ runs: 1, completed: 1 }),
      )
      const items =
        await sql`select "StepName", "Status", "Data" from "Order_Item" order by "StartedAt"`
      expect(items.map(({ StepName, Status, Data }) => [StepName, Status, Data])).toEqual([
        ['order', 'Completed', null],
        ['report', 'Skipped', null],
        ['csv', 'Completed', 3],
      ])
    },
  )
})
