/**
 * Kills the coordinator that works on a bulk operation. Another coordinator must continue the operation and change each
 * run once. The version of a run counts its changes, and the action log has one entry for each change.
 */
import { eventually } from '@integration-host/shared/test-support/eventually'
import type { StartedProcess } from '@integration-host/shared/test-support/start-process'
import type { OperationDetail } from '@integration-host/shared/contracts/operations'
import { describe, expect, it } from 'vitest'
import {
  orders,
  queueOrders,
  readyUrl,
  startAnotherCoordinator,
} from '../support/faults/coordinators.ts'
import { type DatabaseAssertions, openDatabase } from '../support/faults/database-assertions.ts'
import { scale, seededRandom } from '../support/faults/scale.ts'
import { coordinatorWithFailpoints } from '../support/processes/failpoints.ts'
import { startSystem, type System } from '../support/system.ts'

const ROUNDS = scale({ test: 2, faults: 10, long: 30 })
const RUNS = 200
const settings = { LOCAL_PULL_SECONDS: '0.2', REMOTE_PULL_SECONDS: '1', LEASE_MS: '1000' }

const request = async (system: System, url: string, body?: object) => {
  const response = await system.call(url, {
    method: body === undefined ? 'GET' : 'POST',
    headers: { 'Content-Type': 'application/json' },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
  if (!response.ok) throw new Error(`${url} responded with ${response.status}`)
  return response.json()
}

/** Starts a coordinator that runs no step, so that only bulk operations change runs. */
async function startCoordinator(system: System): Promise<{ process: StartedProcess; url: string }> {
  const process = startAnotherCoordinator(system, settings, coordinatorWithFailpoints)
  const url = await readyUrl(process)
  await request(system, `${url}/processes/OrderProcess/pause`, {})
  return { process, url }
}

const changedBy = async ({ sql }: DatabaseAssertions, operation: string): Promise<number> => {
  const [row] = await sql<{ n: number }[]>`
    select count(*)::int as n from "Order_Action"
    where "OperationID" = ${operation} and "TransactionID" is not null`
  return row?.n ?? 0
}

describe('a coordinator that is killed during a bulk operation', () => {
  it.for(['filter', 'ids'] as const)(
    'after a kill during a bulk operation on runs selected by %s, another coordinator changes each remaining run once',
    { timeout: 60_000 + ROUNDS * 30_000 },
    async (by, { annotate }) => {
      const random = seededRandom()
      await using system = await startSystem([])
      await using stack = new AsyncDisposableStack()
      let { process, url } = await startCoordinator(system)
      const database = stack.use(await openDatabase(system))
      const transactions = orders(RUNS, 'o')
      await queueOrders(system, url, transactions)
      let repeated = 0
      for (let round = 1; round <= ROUNDS; round += 1) {
        const [Action, before, after] =
          round % 2 === 1 ? ['cancel', 'Queued', 'Cancelled'] : ['resume', 'Cancelled', 'Queued']
        const { ID } = (await request(system, `${url}/operations`, {
          Action,
          Process: 'OrderProcess',
          ...(by === 'ids'
            ? { Ids: transactions.map(({ TransactionID }) => TransactionID) }
            : { Filter: { status: [before] } }),
          Reason: `round ${round}`,
          PerSecond: 250,
        })) as OperationDetail
        const killAfter = Math.floor(random() * (RUNS - 60)) + 1
        await eventually(async () =>
          expect(await changedBy(database, ID)).toBeGreaterThanOrEqual(killAfter),
        )
        await process.stop('SIGKILL')
        const [atKill] = await database.sql<{ status: string; done: number }[]>`
          select "Status" as status, ("Progress"->>'Done')::int as done from "Order_Operation"
          where "ID" = ${ID}`
        expect(atKill?.status).toBe('Running')
        const changed = await changedBy(database, ID)
        expect(changed, 'the kill has interrupted the operation').toBeLessThan(RUNS)
        repeated += changed - (atKill?.done ?? 0)

        ;({ process, url } = await startCoordinator(system))
        const operation = await eventually(async () => {
          const found = (await request(system, `${url}/operations/${ID}`)) as OperationDetail
          expect(found.Status).toBe('Completed')
          return found
        })
        expect(operation).toMatchObject({ Done: RUNS, Skipped: 0, Failed: 0, Failures: [] })
        expect(await changedBy(database, ID)).toBe(RUNS)
        const runs = await database.sql<{ status: string; version: number; n: number }[]>`
          select "Status" as status, "Version" as version, count(*)::int as n from "Order_Header"
          group by 1, 2`
        expect(runs.map((row) => ({ ...row }))).toEqual([
          { status: after, version: round, n: RUNS },
        ])
      }
      await annotate(
        `bulk operation by ${by}: killed ${ROUNDS} times while it changed ${RUNS} runs; ${repeated} runs were changed ` +
          'but not in the recorded progress, none was changed twice, none left out',
        'measurement',
      )
    },
  )
})
