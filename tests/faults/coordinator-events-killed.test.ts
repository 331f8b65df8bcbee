/**
 * Kills a coordinator at every point at which a run begins to wait for an event, or ends to wait. For each point the test
 * checks the remaining row. Then another coordinator must complete the run, with the first event.
 */
import { eventually } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { openDatabase } from '../support/faults/database-assertions.ts'
import {
  post,
  queueOrder,
  readyUrl,
  startAnotherCoordinator,
} from '../support/faults/coordinators.ts'
import { coordinatorWithFailpoints, diedAt } from '../support/processes/failpoints.ts'
import { startSystem } from '../support/system.ts'

const inPlace = { Status: 'Running', StepName: 'report', Version: 2 }
const waiting = { Status: 'Waiting', StepName: 'report', Version: 3 }
const movedOn = { Status: 'Running', StepName: 'csv', Version: 4 }

interface CrashPoint {
  readonly name: string
  readonly failpoint: string
  readonly process: 'waiting' | 'expiring'
  /** When the event is sent: to the coordinator that dies, or to the survivor; never to a run whose time is over. */
  readonly event: 'dies' | 'survives' | 'never'
  readonly row: typeof waiting
}

const crashPoints: readonly CrashPoint[] = [
  {
    name: 'before the run is recorded as waiting, the run enters the place again',
    failpoint: 'parking',
    process: 'waiting',
    event: 'survives',
    row: inPlace,
  },
  {
    name: 'after the run is recorded as waiting, the event of another coordinator moves it on',
    failpoint: 'parked',
    process: 'waiting',
    event: 'survives',
    row: waiting,
  },
  {
    name: 'before the event is stored, the sender repeats it',
    failpoint: 'before event',
    process: 'waiting',
    event: 'dies',
    row: waiting,
  },
  {
    name: 'after the event is stored, the sweeper publishes the next step, and a repetition is no error',
    failpoint: 'event received',
    process: 'waiting',
    event: 'dies',
    row: movedOn,
  },
  {
    name: 'before the timeout is recorded, the sweeper of another coordinator records it',
    failpoint: 'parked',
    process: 'expiring',
    event: 'never',
    row: waiting,
  },
  {
    name: 'after the timeout is recorded, the sweeper publishes the next step',
    failpoint: 'wait settled',
    process: 'expiring',
    event: 'never',
    row: movedOn,
  },
]

const SETTINGS = {
  LOCAL_PULL_SECONDS: '0.2',
  REMOTE_PULL_SECONDS: '0.3',
  // The survivor may move the run on before it is connected to RabbitMQ. Its sweeper then publishes the step.
  SWEEP_MS: '2000',
}

describe('a coordinator that is killed while a run waits for an event', () => {
  it.for(crashPoints)(
    'another coordinator completes the run: $name',
    { timeout: 180_000 },
    async ({ failpoint, process, event, row }) => {
      await using system = await startSystem([])
      const env = { ...SETTINGS, PROCESS: process }
      const dies = { ...env, SWEEP_MS: '60000', DIES_AT: failpoint, DIES_WITH: 'a' }
      const doomed = startAnotherCoordinator(system, dies, coordinatorWithFailpoints)
      const url = await readyUrl(doomed)
      await using database = await openDatabase(system)
      const { sql } = database
      const read = async () => {
        const [found] = await sql`
          select "Status", "StepName", "Version" from "Order_Header" where "TransactionID" = 'a'`
        return { ...found }
      }
      await eventually(async () => expect(await queueOrder(system, url, 'a')).toBe(202))
      const send = (to: string) => post(system, to, '/a/events/report', { Data: 'yes' })
      if (event === 'dies') {
        await eventually(async () => expect(await read()).toEqual(waiting))
        expect(await send(url)).toBeNull()
      }
      await diedAt(doomed, failpoint)
      expect(await read()).toEqual(row)
      await database.expireLeases()
      await sql`update "Order_Header" set "NextSweepAt" = now() where "Status" = 'Waiting'`
      const survivor = startAnotherCoordinator(system, env, coordinatorWithFailpoints)
      const survivorUrl = await readyUrl(survivor)
      if (event !== 'never') await eventually(async () => expect(await send(survivorUrl)).toBe(200))
      await eventually(async () =>
        expect(await database.countRuns()).toEqual({ runs: 1, completed: 1 }),
      )
      const items = await sql`select "StepName", "Data" from "Order_Item" order by "StartedAt"`
      const data = event === 'never' ? null : 'yes'
      expect(items.map(({ StepName, Data }) => [StepName, Data])).toEqual([
        ['order', null],
        ['report', data],
        ['csv', data],
      ])
    },
  )

  it.for(['before event', 'event received'])(
    'of events that arrive together, each one is kept that was confirmed, and can be repeated: %s',
    { timeout: 180_000 },
    async (failpoint) => {
      await using system = await startSystem([])
      const env = { ...SETTINGS, PROCESS: 'waiting' }
      const dies = { ...env, DIES_AT: failpoint, DIES_WITH: 'a' }
      const doomed = startAnotherCoordinator(system, dies, coordinatorWithFailpoints)
      const url = await readyUrl(doomed)
      await using database = await openDatabase(system)
      const { sql } = database
      const ids = ['b', 'c', 'a', 'd', 'e']
      for (const id of ids)
        await eventually(async () => expect(await queueOrder(system, url, id)).toBe(202))
      await eventually(async () =>
        expect(
          await sql`select from "Order_Header" where "WaitingFor" = 'event:report'`,
        ).toHaveLength(ids.length),
      )
      const send = (to: string, id: string, data: string) =>
        post(system, to, `/${id}/events/report`, { Data: data })
      const statuses = await Promise.all(ids.map((id) => send(url, id, 'yes')))
      await diedAt(doomed, failpoint)
      await database.expireLeases()
      const survivor = startAnotherCoordinator(system, env, coordinatorWithFailpoints)
      const survivorUrl = await readyUrl(survivor)
      for (const [n, id] of ids.entries())
        if (statuses[n] === 200)
          await eventually(async () => expect(await send(survivorUrl, id, 'no')).toBe(409))
      for (const id of ids)
        await eventually(async () => expect(await send(survivorUrl, id, 'yes')).toBe(200))
      await eventually(async () =>
        expect(await database.countRuns()).toEqual({ runs: 5, completed: 5 }),
      )
      const actions = await sql`
        select "TransactionID" from "Order_Action"
        where "Action" = 'signal' and "Outcome" = 'done' order by "TransactionID"`
      expect(actions.map(({ TransactionID }) => TransactionID)).toEqual(ids.toSorted())
    },
  )
})
