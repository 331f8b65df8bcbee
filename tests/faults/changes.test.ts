/**
 * Kills coordinators while they start runs for provider events. Each change must start exactly one run, although the
 * event of every change is delivered five times, and all events are delivered in random order.
 */
import {
  onQueue,
  PROVIDER_EXCHANGE,
  type ProviderEvent,
  providerEventId,
  providerRoutingKey,
} from '@integration-host/shared/contracts/provider-event'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { connect } from 'amqplib'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { startAnotherCoordinator } from '../support/faults/coordinators.ts'
import { openDatabase } from '../support/faults/database-assertions.ts'
import { scale, seededRandom } from '../support/faults/scale.ts'
import { coordinatorWithFailpoints, diedAt } from '../support/processes/failpoints.ts'
import { type ServiceProcess, startSystem, type System } from '../support/system.ts'

const CHANGES = scale({ test: 300, faults: 3_000 })
const COPIES = 5
const KILLS = scale({ test: 3, faults: 20 })
/**
 * How often a test kills coordinators at one failpoint. In `npm run test:faults` this number exceeds the broker's
 * delivery limit for one message.
 */
const KILLS_OF_ONE = scale({ test: 2, faults: 25 })
const TIMEOUT_MS = 120_000 + (KILLS + KILLS_OF_ONE) * 10_000

let system: System
beforeAll(async () => {
  system = await startSystem([])
  // The first coordinator binds the queue and creates the tables.
  const first = system.start('coordinator', settings({}), coordinatorWithFailpoints)
  await system.ready('coordinator')
  await eventually(async () => expect((await queue())?.consumerCount).toBe(1))
  await first.stop('SIGKILL')
}, 120_000)
afterAll(() => system[Symbol.asyncDispose]())

const settings = (env: Readonly<Record<string, string>>) => ({
  LOCAL_PULL_SECONDS: '0.5',
  PROCESS: 'changes',
  ...env,
})
const startCoordinator = (env: Readonly<Record<string, string>> = {}): ServiceProcess =>
  startAnotherCoordinator(system, settings(env), coordinatorWithFailpoints)

const changeOf = (realm: string, n: number): ProviderEvent => {
  const event = {
    Provider: 'intuit' as const,
    Realm: realm,
    Entity: 'Invoice' as const,
    EntityId: String(n),
    Operation: n % 3 === 0 ? ('delete' as const) : ('update' as const),
    ChangedAt: '2026-11-23T17:05:09Z',
    Source: 'webhook' as const,
  }
  return { ...event, Id: providerEventId(event) }
}

/** Publishes the events in this order. Resolves when the broker has confirmed all of them. */
async function publish(events: readonly ProviderEvent[]): Promise<void> {
  const connection = await connect(process.env['TEST_AMQP_URL'] ?? '')
  const channel = await connection.createConfirmChannel()
  for (const event of events)
    channel.publish(
      system.amqpPrefix + PROVIDER_EXCHANGE,
      providerRoutingKey(event),
      Buffer.from(JSON.stringify(event)),
      { persistent: true, messageId: event.Id },
    )
  await channel.waitForConfirms()
  await connection.close()
}

async function queue(): Promise<{ messageCount: number; consumerCount: number } | null> {
  const connection = await connect(process.env['TEST_AMQP_URL'] ?? '')
  try {
    const channel = await connection.createChannel()
    channel.on('error', () => {})
    return await channel.checkQueue(system.amqpPrefix + onQueue('OrderProcess'))
  } catch {
    return null
  } finally {
    await connection.close()
  }
}

/** Expects one run for each change of the realm, no dead letter and an empty queue. */
async function expectOneRunEach(realm: string, events: readonly ProviderEvent[]): Promise<void> {
  await using database = await openDatabase(system)
  const ids = async (): Promise<readonly string[]> => {
    const rows = await database.sql<{ id: string }[]>`
      select "TransactionID" as id from "Order_Header" where "Realm" = ${realm}`
    return rows.map(({ id }) => id).toSorted()
  }
  const expected = events.map(({ Id }) => Id).toSorted()
  await eventually(async () => expect(await ids()).toEqual(expected), { seconds: 90, everyMs: 250 })
  await eventually(async () => expect((await queue())?.messageCount).toBe(0), { everyMs: 250 })
  expect(await ids()).toEqual(expected)
  expect(await database.sql`select "Reason", "MessageID" from "Order_DeadLetter"`).toEqual([])
}

it(
  'each change starts one run, although it is delivered five times and coordinators are killed meanwhile',
  async ({ annotate }) => {
    const random = seededRandom()
    const events = Array.from({ length: CHANGES }, (_, n) => changeOf('1', n))
    const deliveries = Array.from({ length: COPIES }, () => events)
      .flat()
      .map((event) => ({ event, order: random() }))
      .toSorted((one, other) => one.order - other.order)
      .map(({ event }) => event)
    const survivor = startCoordinator()
    const each = Math.ceil(deliveries.length / KILLS)
    for (let n = 0; n < KILLS; n += 1) {
      const victim = startCoordinator()
      await victim.waitForOutput(/listening/)
      await Promise.all([
        publish(deliveries.slice(n * each, (n + 1) * each)),
        delay(300 * random()).then(() => victim.stop('SIGKILL')),
      ])
    }
    await expectOneRunEach('1', events)
    await survivor.stop('SIGKILL')
    await annotate(
      `${CHANGES} changes delivered ${COPIES} times each, ${KILLS} SIGKILLs of coordinators: ${CHANGES} runs, no dead letter`,
      'measurement',
    )
  },
  TIMEOUT_MS,
)

it.each(['company requested', 'company known', 'before insert', 'inserted'])(
  'a change starts one run although coordinators repeatedly die at "%s"',
  async (failpoint) => {
    const realm = failpoint.replace(' ', '-')
    const event = changeOf(realm, 1)
    await publish([event, event])
    for (let kill = 0; kill < KILLS_OF_ONE; kill += 1)
      await diedAt(startCoordinator({ DIES_AT: failpoint, DIES_WITH: event.Id }), failpoint)
    const survivor = startCoordinator()
    await expectOneRunEach(realm, [event])
    await survivor.stop('SIGKILL')
  },
  TIMEOUT_MS,
)
