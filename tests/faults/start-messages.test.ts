/**
 * Kills coordinators, RabbitMQ and PostgreSQL while messages of the queue `start.<Process>` become runs. Each confirmed
 * message must become exactly one run.
 */
import { START_EXCHANGE, startQueue } from '@integration-host/shared/contracts/topology'
import { eventually, until } from '@integration-host/shared/test-support/eventually'
import { type ChannelModel, connect } from 'amqplib'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import {
  type RestartableRabbitMq,
  type RestartableServer,
  startRestartableRabbitMq,
  startRestartableServer,
} from '../support/backends/restartable-servers.ts'
import { startAnotherCoordinator } from '../support/faults/coordinators.ts'
import { openDatabase } from '../support/faults/database-assertions.ts'
import { scale, seededRandom } from '../support/faults/scale.ts'
import { coordinatorWithFailpoints, diedAt } from '../support/processes/failpoints.ts'
import { type ServiceProcess, startSystem, type System } from '../support/system.ts'

const MESSAGES = scale({ test: 3_000, faults: 30_000 })
const KILLS = scale({ test: 3, faults: 20 })
const OUTAGES = scale({ test: 1, faults: 3 })
/**
 * How often a test kills coordinators at one failpoint. In `npm run test:faults` this number exceeds the broker's
 * delivery limit for one message.
 */
const KILLS_OF_ONE = scale({ test: 2, faults: 25 })
const TIMEOUT_MS = 150_000 + (KILLS + OUTAGES * 10 + KILLS_OF_ONE) * 10_000

let broker: RestartableRabbitMq
let postgres: RestartableServer
let system: System

beforeAll(async () => {
  broker = await startRestartableRabbitMq()
  postgres = await startRestartableServer('postgres')
  vi.stubEnv('TEST_AMQP_URL', broker.url)
  vi.stubEnv('TEST_DATABASE_URL', postgres.url)
  system = await startSystem([])
  // The first coordinator declares the queue and creates the tables.
  const first = system.start('coordinator', settings({}), coordinatorWithFailpoints)
  await system.ready('coordinator')
  await first.stop('SIGKILL')
}, 120_000)
afterAll(async () => {
  await system[Symbol.asyncDispose]()
  vi.unstubAllEnvs()
  await postgres[Symbol.asyncDispose]()
  await broker[Symbol.asyncDispose]()
})

/** The runs end in their first step, because the test only checks how they start. */
const settings = (env: Readonly<Record<string, string>>) => ({
  LOCAL_PULL_SECONDS: '0.5',
  PROCESS: 'short',
  ...env,
})
const startCoordinator = (env: Readonly<Record<string, string>> = {}): ServiceProcess =>
  startAnotherCoordinator(system, settings(env), coordinatorWithFailpoints)

/**
 * For each id, publishes a message repeatedly until the broker has confirmed the message. If the connection is lost, a
 * new connection is opened.
 */
async function publish(ids: readonly string[]): Promise<void> {
  const missing = new Set(ids)
  while (missing.size > 0) {
    let connection: ChannelModel | undefined
    try {
      connection = await connect(broker.url)
      connection.on('error', () => {})
      const channel = await connection.createConfirmChannel()
      channel.on('error', () => {})
      const ended = new Promise<never>((_, reject) => {
        channel.once('close', () => reject(new Error('the channel is closed')))
      })
      ended.catch(() => {})
      for (const id of missing) {
        const confirmed = new Promise<void>((resolve, reject) => {
          channel.publish(
            system.amqpPrefix + START_EXCHANGE,
            'OrderProcess',
            Buffer.from(JSON.stringify({ InitialData: id })),
            { persistent: true, mandatory: true, messageId: id },
            (error: unknown) => (error ? reject(new Error('not confirmed')) : resolve()),
          )
        })
        await Promise.race([confirmed, ended])
        missing.delete(id)
      }
    } catch {
      await until(isBrokerUp)
    } finally {
      await connection?.close().catch(() => {})
    }
  }
}

const isBrokerUp = (): Promise<boolean> =>
  connect(broker.url).then(
    async (connection) => {
      await connection.close()
      return true
    },
    () => false,
  )

async function messagesInQueue(): Promise<number> {
  const connection = await connect(broker.url)
  try {
    const channel = await connection.createChannel()
    return (await channel.checkQueue(system.amqpPrefix + startQueue('OrderProcess'))).messageCount
  } finally {
    await connection.close()
  }
}

/** Expects one run for each id, no dead letter and an empty queue. */
async function expectOneRunEach(prefix: string, count: number): Promise<void> {
  await using database = await openDatabase(system)
  const runs = async (): Promise<readonly { id: string; data: unknown }[]> => database.sql`
    select "TransactionID" as id, "InitialData" as data from "Order_Header"
    where "TransactionID" like ${`${prefix}%`}`
  await eventually(async () => expect(await runs()).toHaveLength(count), {
    seconds: 90,
    everyMs: 250,
  })
  await eventually(async () => expect(await messagesInQueue()).toBe(0), { everyMs: 250 })
  const stored = await runs()
  expect(stored).toHaveLength(count)
  expect(stored.filter(({ id, data }) => id !== data)).toEqual([])
  expect(await database.sql`select "Reason", "MessageID" from "Order_DeadLetter"`).toEqual([])
}

it(
  'each confirmed start message becomes one run, although coordinators, RabbitMQ and PostgreSQL are killed meanwhile',
  async ({ annotate }) => {
    const random = seededRandom()
    const survivor = startCoordinator()
    const kill = async (): Promise<void> => {
      const victim = startCoordinator()
      await victim.waitForOutput(/listening/)
      await delay(300 * random())
      await victim.stop('SIGKILL')
    }
    const outage = (server: RestartableServer) => async (): Promise<void> => {
      await delay(300 * random())
      await server.kill()
      await server.restart()
    }
    const faults = [
      ...Array.from({ length: KILLS }, () => kill),
      ...Array.from({ length: OUTAGES }, () => [outage(broker), outage(postgres)]).flat(),
    ]
    const each = Math.ceil(MESSAGES / faults.length)
    for (const [index, fault] of faults.entries()) {
      const count = Math.min(each, MESSAGES - index * each)
      const ids = Array.from({ length: count }, (_, n) => `load-${index * each + n}`)
      await Promise.all([publish(ids), fault()])
    }
    await expectOneRunEach('load-', MESSAGES)
    await survivor.stop('SIGKILL')
    await annotate(
      `${MESSAGES} start messages, ${KILLS} SIGKILLs of coordinators, RabbitMQ and PostgreSQL killed and restarted ${OUTAGES} times each: ${MESSAGES} runs, no dead letter`,
      'measurement',
    )
  },
  TIMEOUT_MS,
)

it.each(['before insert', 'inserted'])(
  'a start message becomes one run although coordinators repeatedly die at "%s"',
  async (failpoint) => {
    const id = `at-${failpoint.replace(' ', '-')}`
    await publish([id])
    for (let kill = 0; kill < KILLS_OF_ONE; kill += 1)
      await diedAt(startCoordinator({ DIES_AT: failpoint, DIES_WITH: id }), failpoint)
    const survivor = startCoordinator()
    await expectOneRunEach(id, 1)
    await survivor.stop('SIGKILL')
  },
  TIMEOUT_MS,
)
