/** Kills the coordinator at every await of a sweep of the change feed. */
import type { ChangesView } from '@integration-host/shared/contracts/company'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { openDatabase } from '../support/faults/database-assertions.ts'
import { connectCompany } from '../support/clients/user-actions.ts'
import { coordinatorWithFailpoints, diedAt } from '../support/processes/failpoints.ts'
import { startSystem, type System } from '../support/system.ts'

const REALM = '9341453908059889'
const INVOICES = 20

let system: System
beforeAll(async () => {
  system = await startSystem(['sandbox-provider', 'token-service', 'accounting-gateway'])
  startCoordinator()
  await system.ready('coordinator')
  await connectCompany(system, REALM)
}, 120_000)
afterAll(() => system[Symbol.asyncDispose]())

const startCoordinator = (env: Readonly<Record<string, string>> = {}) =>
  system.start(
    'coordinator',
    {
      PROCESS: 'changes',
      TOKEN_SERVICE_URL: system.url('token-service'),
      LOCAL_PULL_SECONDS: '0.5',
      REMOTE_PULL_SECONDS: '1',
      LEASE_MS: '1500',
      ...env,
    },
    coordinatorWithFailpoints,
  )

const changes = async (): Promise<Partial<ChangesView>> =>
  (await (
    await system.call(`${system.url('coordinator')}/realms/${REALM}/changes`)
  ).json()) as Partial<ChangesView>

/** The sandbox of this system sends no webhooks, so the coordinator finds every change only in the change feed. */
async function createInvoice(): Promise<string> {
  const url = `${system.url('accounting-gateway')}/v3/company/${REALM}/invoice`
  const response = await system.call(url, { method: 'POST', body: '{"TotalAmt":1}' })
  const { Invoice } = (await response.json()) as {
    Invoice: { Id: string; MetaData: { CreateTime: string } }
  }
  return `Invoice-${Invoice.Id}@${Invoice.MetaData.CreateTime.slice(0, 19)}Z/${REALM}`
}

const created: string[] = []

it.each(['change published', 'before cursor', 'cursor moved'])(
  'each missed change starts one run although the coordinator is killed at: %s',
  async (point) => {
    await eventually(async () => expect((await changes()).ReadUntil).toEqual(expect.any(String)))
    const { SweptAt: sweptBefore } = await changes()
    const ids: string[] = []
    for (let n = 0; n < INVOICES; n += 1) ids.push(await createInvoice())
    created.push(...ids)
    await system.service('coordinator').stop('SIGKILL')
    const withId = point === 'change published' ? (ids[INVOICES / 2] ?? '') : REALM
    const victim = startCoordinator({ DIES_AT: point, DIES_WITH: withId })
    await system.ready('coordinator')
    const sweep = `${system.url('coordinator')}/schedules/ChangeFeed/sweep/run`
    expect((await system.call(sweep, { method: 'POST', body: '{}' })).status).toBe(200)
    await diedAt(victim, point)

    startCoordinator()
    await system.ready('coordinator')
    await using database = await openDatabase(system)
    await eventually(
      async () => {
        const rows = await database.sql<{ id: string; status: string }[]>`
          select "TransactionID" as id, "Status" as status from "Order_Header"
          where "Process" = 'OrderProcess' and "ReplayID" = 0`
        expect(rows.map(({ id }) => id).toSorted()).toEqual(created.toSorted())
        expect(new Set(rows.map(({ status }) => status))).toEqual(new Set(['Completed']))
        expect(await database.sql`select from "Order_Header" where "ReplayID" > 0`).toHaveLength(0)
      },
      { seconds: 60, everyMs: 250 },
    )
    await eventually(async () => expect((await changes()).SweptAt).not.toBe(sweptBefore), {
      seconds: 60,
    })
    expect(await database.sql`select "Reason" from "Order_DeadLetter"`).toEqual([])
  },
  120_000,
)
