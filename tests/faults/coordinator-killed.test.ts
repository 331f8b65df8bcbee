import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { stepQueue } from '@integration-host/shared/contracts/step-message'
import { type Channel, type ChannelModel, connect } from 'amqplib'
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { eventually } from '../support/eventually.ts'
import { backend, startSystem, type System } from '../support/system.ts'

const ORDERS = 320
const KILLS = 8
const pulls = { LOCAL_PULL_SECONDS: '1', REMOTE_PULL_SECONDS: '2' }

interface Figures {
  readonly headers: number
  readonly completed: number
  readonly items: number
}

/** One replica lives on, the other dies again and again, with SIGKILL, under load. */
describe('a coordinator that is killed under load', () => {
  let system: System
  let sql: postgres.Sql
  let broker: ChannelModel
  let channel: Channel

  beforeAll(async () => {
    system = await startSystem([])
    system.start('demo-api')
    system.start('coordinator', pulls)
    await system.ready('demo-api', 'coordinator')
    sql = postgres(system.databaseUrl, { max: 2 })
    broker = await connect(backend('TEST_AMQP_URL'))
    channel = await broker.createChannel()
  })
  afterAll(async () => {
    await broker.close()
    await sql.end()
    await system[Symbol.asyncDispose]()
  })

  const figures = async (): Promise<Figures> => {
    const [row] = await sql<Figures[]>`
      select count(*)::int as headers,
        (count(*) filter (where "Status" = 'Completed'))::int as completed,
        (select count(*)::int from "Order_Item" where "Status" = 'Completed') as items
      from "Order_Header"`
    return row ?? { headers: 0, completed: 0, items: 0 }
  }

  const consumers = async (): Promise<number> =>
    (await channel.checkQueue(system.amqpPrefix + stepQueue('OrderProcess', 'order'))).consumerCount

  it('loses no order, records no step twice, and leaves no torn file', async () => {
    const queue = async (number: number): Promise<void> => {
      const answer = await fetch(`${system.url('demo-api')}/queue?number=k${number}`)
      expect(answer.status).toBe(200)
      await answer.body?.cancel()
    }
    for (let kill = 0; kill < KILLS; kill += 1) {
      const dying = system.start('coordinator', { PORT: '0', ...pulls })
      await eventually(async () => expect(await consumers()).toBe(2))
      const burst = Array.from({ length: ORDERS / KILLS }, (_, index) =>
        queue((kill * ORDERS) / KILLS + index),
      )
      // It dies with steps in hand: some called, some recorded, some neither.
      await eventually(() => expect(dying.output()).toContain('step start'))
      await dying.stop('SIGKILL')
      await Promise.all(burst)
      await eventually(async () => expect(await consumers()).toBe(1))
    }
    const lastKillAt = performance.now()
    // The runs of the dead go on when their leases have run out.
    await eventually(
      async () =>
        expect(await figures()).toEqual({ headers: ORDERS, completed: ORDERS, items: 3 * ORDERS }),
      60,
    )
    const recoverySeconds = (performance.now() - lastKillAt) / 1_000

    const files = await readdir(join(system.dataDir, 'OrderCSV'))
    expect(files).toHaveLength(ORDERS)
    for (const file of files) {
      const [, row] = (await readFile(join(system.dataDir, 'OrderCSV', file), 'utf8')).split('\n')
      expect(row).toMatch(/^O-k\d+,.+,.+$/)
    }
    const report = await (await system.call(`${system.url('coordinator')}/integrity`)).json()
    expect(report).toMatchObject({ ok: true, deadLetters: { OrderProcess: 0 } })
    const [repeated] =
      await sql`select count(*)::int as count from "Order_Attempt" where "Outcome" = 'in_doubt'`
    console.log(
      `${ORDERS} orders, ${KILLS} kills: lost 0, duplicate items 0, torn files 0, steps in doubt ${repeated?.['count']}, all complete ${recoverySeconds.toFixed(1)} s after the last kill`,
    )
  }, 120_000)
})
