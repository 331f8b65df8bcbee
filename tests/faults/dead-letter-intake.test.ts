/**
 * Kills coordinators, and connections to the broker, while they move dead letters from the queue to the table. As in
 * RabbitMQ 4, the broker deletes a message of `dead.<Process>` that it has delivered more often than the delivery limit
 * permits.
 */
import { DEAD_EXCHANGE, deadQueue } from '@integration-host/shared/contracts/topology'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { startRelay } from '@integration-host/shared/test-support/relay'
import { connect } from 'amqplib'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, expect, it } from 'vitest'
import {
  type RestartableRabbitMq,
  startRestartableRabbitMq,
} from '../support/backends/restartable-servers.ts'
import { startAnotherCoordinator } from '../support/faults/coordinators.ts'
import { type DatabaseAssertions, openDatabase } from '../support/faults/database-assertions.ts'
import { scale, seededRandom } from '../support/faults/scale.ts'
import { coordinatorWithFailpoints, diedAt } from '../support/processes/failpoints.ts'
import { type ServiceProcess, startSystem, type System } from '../support/system.ts'

const ROUNDS = scale({ test: 1, faults: 10 })
const LETTERS = scale({ test: 300, faults: 500 })
/** The number of dead letters that a coordinator may have in flight. */
const PREFETCH = 20
/**
 * How often a test kills coordinators at one failpoint. In `npm run test:faults` this number exceeds the broker's
 * delivery limit for one message.
 */
const KILLS_OF_ONE = scale({ test: 2, faults: 25 })
const TIMEOUT_MS = 120_000 + (ROUNDS + KILLS_OF_ONE) * 20_000

let broker: RestartableRabbitMq
let system: System
let database: DatabaseAssertions

beforeAll(async () => {
  broker = await startRestartableRabbitMq()
  await broker.control(
    'set_policy',
    '--apply-to',
    'queues',
    'limit',
    'dead\\.',
    '{"delivery-limit":20}',
  )
  system = await startSystem([])
  const first = startCoordinator({})
  await system.ready('coordinator')
  database = await openDatabase(system)
  await first.stop('SIGKILL')
}, 120_000)
afterAll(async () => {
  await database[Symbol.asyncDispose]()
  await system[Symbol.asyncDispose]()
  await broker[Symbol.asyncDispose]()
})

const settings = (env: Readonly<Record<string, string>>) => ({
  AMQP_URL: broker.url,
  LOCAL_PULL_SECONDS: '0.2',
  ...env,
})
function startCoordinator(env: Readonly<Record<string, string>>, entry?: string): ServiceProcess {
  return system.start('coordinator', settings(env), entry)
}
const startAnother = (env: Readonly<Record<string, string>>, entry?: string): ServiceProcess =>
  startAnotherCoordinator(system, settings(env), entry)

async function onChannel<Result>(
  work: (channel: Awaited<ReturnType<typeof openChannel>>['channel']) => Promise<Result>,
): Promise<Result> {
  const { connection, channel } = await openChannel()
  try {
    return await work(channel)
  } finally {
    await connection.close()
  }
}
async function openChannel() {
  const connection = await connect(broker.url)
  return { connection, channel: await connection.createConfirmChannel() }
}

/** Publishes dead letters that name the transactions `ids`. */
const publish = (ids: readonly string[]): Promise<void> =>
  onChannel(async (channel) => {
    for (const TransactionID of ids)
      channel.publish(
        system.amqpPrefix + DEAD_EXCHANGE,
        'OrderProcess',
        Buffer.from(
          JSON.stringify({
            v: 1,
            Process: 'OrderProcess',
            TransactionID,
            ReplayID: 0,
            Step: 'order',
            Version: 0,
          }),
        ),
        { persistent: true, messageId: TransactionID },
      )
    await channel.waitForConfirms()
  })
/** Returns the number of ready messages and of consumers of the queue. */
const queue = () =>
  onChannel((channel) => channel.checkQueue(system.amqpPrefix + deadQueue('OrderProcess')))
const rowsOf = async (prefix: string): Promise<readonly string[]> => {
  const rows = await database.sql<{ id: string }[]>`
    select "TransactionID" as id from "Order_DeadLetter" where "TransactionID" like ${`${prefix}%`}`
  return rows.map(({ id }) => id)
}
const expectOnce = async (prefix: string, ids: readonly string[]): Promise<void> => {
  await eventually(async () => expect(await rowsOf(prefix)).toHaveLength(ids.length), {
    seconds: 60,
    everyMs: 100,
  })
  expect((await rowsOf(prefix)).toSorted()).toEqual(ids.toSorted())
  await eventually(async () => expect((await queue()).messageCount).toBe(0), { everyMs: 100 })
  expect(await rowsOf(prefix)).toHaveLength(ids.length)
}

it(
  'every dead letter is stored once, although coordinators and their broker connections are killed meanwhile',
  async ({ annotate }) => {
    const random = seededRandom()
    let cuts = 0
    for (let round = 0; round < ROUNDS; round += 1) {
      await using relay = await startRelay(broker.url, 5672)
      const survivor = startAnother({ AMQP_URL: relay.url })
      for (const moment of ['before a store', 'at random'] as const) {
        const prefix = `r${round}-${moment}-`
        const ids = Array.from({ length: LETTERS }, (_, n) => `${prefix}${n}`)
        const victim = startAnother({})
        await eventually(async () => expect((await queue()).consumerCount).toBe(2))
        const kill = async (): Promise<void> => {
          if (random() < 0.5) {
            relay.cut('reset')
            cuts += 1
          }
          await victim.stop('SIGKILL')
        }
        if (moment === 'at random') {
          await publish(ids)
          await delay(100 * random())
          await kill()
        } else
          await database.sql.begin(async (tx) => {
            await tx`lock table "Order_DeadLetter" in share mode`
            await publish(ids)
            // No dead letter can be stored while the table is locked. Each of the two coordinators then has its
            // maximum number of messages in flight.
            await eventually(async () =>
              expect((await queue()).messageCount).toBe(LETTERS - 2 * PREFETCH),
            )
            await kill()
          })
        await expectOnce(prefix, ids)
      }
      await survivor.stop('SIGKILL')
    }
    await annotate(
      `${2 * ROUNDS} times ${LETTERS} dead letters; each time a coordinator was killed, and ${cuts} times the connection of the other one too: each dead letter is stored once`,
      'measurement',
    )
  },
  TIMEOUT_MS,
)

it.each(['dead letter received', 'dead letter stored'])(
  'no dead letter is lost or stored twice although coordinators repeatedly die at "%s"',
  async (failpoint) => {
    const id = failpoint.replaceAll(' ', '-')
    await publish([id])
    const env = { DIES_AT: failpoint, DIES_WITH: id }
    for (let kill = 0; kill < KILLS_OF_ONE; kill += 1)
      await diedAt(startAnother(env, coordinatorWithFailpoints), failpoint)
    const survivor = startAnother({})
    await expectOnce(id, [id])
    await survivor.stop('SIGKILL')
  },
  TIMEOUT_MS,
)
