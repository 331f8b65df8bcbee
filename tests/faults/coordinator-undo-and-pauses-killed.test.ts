/**
 * Kills a coordinator at every point of an undo, of a wait for a change in the books, and of the pause of a company. For
 * each point the test checks the remaining row. Then another coordinator must bring the run to its end.
 */
import { createServer } from 'node:http'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { openDatabase } from '../support/faults/database-assertions.ts'
import { post, readyUrl, startAnotherCoordinator } from '../support/faults/coordinators.ts'
import { coordinatorWithFailpoints, diedAt } from '../support/processes/failpoints.ts'
import { startSystem } from '../support/system.ts'

const PAUSED = 'paused:42'

interface CrashPoint {
  readonly name: string
  readonly failpoint: string
  readonly process: 'undo' | 'changing' | 'short'
  readonly row: {
    readonly Status: string
    readonly StepName: string
    readonly WaitingFor: string | null
  }
  /** The status with which the run ends, and its items and attempts then. */
  readonly end: string
  readonly items: readonly (readonly [string, string])[]
  readonly attempts: readonly (readonly [string, string])[]
}

const completed = [
  ['order', 'completed'],
  ['report', 'completed'],
] as const
const undone = {
  process: 'undo',
  end: 'Undone',
  items: [
    ['csv', 'Failed'],
    ['order', 'Undone'],
    ['report', 'Undone'],
  ],
} as const
const changed = {
  process: 'changing',
  end: 'Completed',
  items: [
    ['csv', 'Completed'],
    ['order', 'Completed'],
    ['report', 'Completed'],
  ],
} as const
const resumed = { process: 'short', end: 'Completed', items: [['order', 'Completed']] } as const

const crashPoints: readonly CrashPoint[] = [
  {
    ...undone,
    name: 'before an undo is recorded, it is repeated (C26)',
    failpoint: 'undoing',
    row: { Status: 'Undoing', StepName: 'report', WaitingFor: null },
    attempts: [
      ...completed,
      ['csv', 'step_failed'],
      ['report', 'in_doubt'],
      ['report', 'undone'],
      ['order', 'undone'],
    ],
  },
  {
    ...undone,
    name: 'after an undo is recorded, it is not repeated (C27)',
    failpoint: 'undone',
    row: { Status: 'Undoing', StepName: 'order', WaitingFor: null },
    attempts: [...completed, ['csv', 'step_failed'], ['report', 'undone'], ['order', 'undone']],
  },
  {
    ...changed,
    name: 'before a run is recorded as waiting for a change, it enters the place again (C28)',
    failpoint: 'parking',
    row: { Status: 'Running', StepName: 'report', WaitingFor: null },
    attempts: [
      ['order', 'completed'],
      ['report', 'in_doubt'],
      ['csv', 'completed'],
    ],
  },
  {
    ...changed,
    name: 'in a look, after the run has moved on, the wait is removed by the repeated look (C29)',
    failpoint: 'event received',
    row: { Status: 'Running', StepName: 'csv', WaitingFor: null },
    attempts: [
      ['order', 'completed'],
      ['csv', 'completed'],
    ],
  },
  {
    ...resumed,
    name: 'before a run is recorded as waiting for its company, it waits after the lease (C30)',
    failpoint: 'pausing',
    row: { Status: 'Running', StepName: 'order', WaitingFor: null },
    attempts: [
      ['order', 'in_doubt'],
      ['order', 'completed'],
    ],
  },
  {
    ...resumed,
    name: 'after a company was resumed, another coordinator makes its runs due (C31)',
    failpoint: 'resuming',
    row: { Status: 'Waiting', StepName: 'order', WaitingFor: PAUSED },
    attempts: [['order', 'completed']],
  },
]

/** Starts a gateway for which every invoice is paid. */
async function startGateway() {
  const server = createServer((_, response) => {
    response.writeHead(200, { 'content-type': 'application/json' })
    response.end(JSON.stringify({ Invoice: { Id: '129', Balance: 0 } }))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address() as { readonly port: number }
  return {
    url: `http://127.0.0.1:${address.port}`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

describe('a coordinator that is killed while a run is undone, waits for a change, or is paused', () => {
  it.for(crashPoints)(
    'another coordinator ends the run: $name',
    { timeout: 180_000 },
    async ({ failpoint, process, row, end, items, attempts }) => {
      await using gateway = await startGateway()
      await using system = await startSystem([])
      const env = {
        PROCESS: process,
        GATEWAY_URL: gateway.url,
        LOCAL_PULL_SECONDS: '0.2',
        REMOTE_PULL_SECONDS: '0.3',
      }
      const dies = { ...env, SWEEP_MS: '60000', DIES_AT: failpoint, DIES_WITH: 'a' }
      const doomed = startAnotherCoordinator(system, dies, coordinatorWithFailpoints)
      const url = await readyUrl(doomed)
      await using database = await openDatabase(system)
      const { sql } = database
      const read = async () => {
        const [found] = await sql`
          select "Status", "StepName", "WaitingFor" from "Order_Header" where "TransactionID" = 'a'`
        return { ...found }
      }
      const setPaused = async (to: string, action: 'pause' | 'resume'): Promise<number | null> => {
        const request = system.call(`${to}/realms/42/${action}`, { method: 'POST' })
        return (await request.catch(() => null))?.status ?? null
      }
      const isPaused = process === 'short'
      if (isPaused) await eventually(async () => expect(await setPaused(url, 'pause')).toBe(200))
      await eventually(async () =>
        expect(
          await post(system, url, '', { TransactionID: 'a', InitialData: 'a', Realm: '42' }),
        ).toBe(202),
      )
      if (failpoint === 'resuming') {
        await eventually(async () => expect(await read()).toEqual(row))
        await setPaused(url, 'resume')
      }
      await diedAt(doomed, failpoint)
      expect(await read()).toEqual(row)
      await database.expireLeases()
      await sql`update "Order_Header" set "NextSweepAt" = now(),
        "LeaseUntil" = case when "LeaseUntil" is null then null else now() end where "Status" = 'Undoing'`
      const survivor = startAnotherCoordinator(system, env, coordinatorWithFailpoints)
      const survivorUrl = await readyUrl(survivor)
      if (failpoint === 'pausing') {
        await eventually(async () => expect(await read()).toMatchObject({ WaitingFor: PAUSED }))
        expect(await setPaused(survivorUrl, 'resume')).toBe(200)
      }
      await eventually(async () => expect(await read()).toMatchObject({ Status: end }))
      const foundItems = await sql`
        select "StepName", "Status" from "Order_Item" where "TransactionID" = 'a' order by "StepName"`
      expect(foundItems.map(({ StepName, Status }) => [StepName, Status])).toEqual(items)
      const foundAttempts = await sql`
        select "StepName", "Outcome" from "Order_Attempt" where "TransactionID" = 'a' order by "ID"`
      expect(foundAttempts.map(({ StepName, Outcome }) => [StepName, Outcome])).toEqual(attempts)
      await eventually(async () => {
        const [waits] = await sql`
          select count(*)::int as waits from "Order_Installation" where "Name" like 'change:%'`
        expect(waits).toMatchObject({ waits: 0 })
      })
    },
  )
})
