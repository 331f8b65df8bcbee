/**
 * A coordinator loses the connection to a backend while it has a step in flight. docs/coordinator.md lists these
 * cases.
 */
import { eventually } from '@integration-host/shared/test-support/eventually'
import { type Relay, startRelay } from '@integration-host/shared/test-support/relay'
import { expect, it } from 'vitest'
import { backend, startSystem } from '../support/system.ts'
import { type DatabaseAssertions, openDatabase } from '../support/faults/database-assertions.ts'
import { queueOrder } from '../support/faults/coordinators.ts'
import { scale } from '../support/faults/scale.ts'
import { stepQueuesOf } from '../support/faults/step-queues.ts'
import { startStepTarget } from '../support/fakes/step-target.ts'

const ROUNDS = scale({ test: 1, faults: 10 })

/** A coordinator whose connections to its backends the test can cut. */
async function startFixture() {
  await using stack = new AsyncDisposableStack()
  const target = stack.use(await startStepTarget())
  const system = stack.use(await startSystem([]))
  const postgres = stack.use(await startRelay(system.databaseUrl, 5432))
  const rabbitmq = stack.use(await startRelay(backend('TEST_AMQP_URL'), 5672))
  const { url } = system.start('coordinator', {
    DATABASE_URL: postgres.url,
    AMQP_URL: rabbitmq.url,
    DEMO_API_URL: target.url,
    LOCAL_PULL_SECONDS: '1',
  })
  await system.ready('coordinator')
  const database = stack.use(await openDatabase(system))
  const queues = stepQueuesOf(system)
  const owned = stack.move()
  return {
    target,
    database,
    postgres,
    rabbitmq,
    queue: (order: string) => queueOrder(system, url, order),
    /** Resolves when the coordinator reports at `/health/ready` that the dependency is down. */
    waitUntilDown: (dependency: string) =>
      eventually(async () => {
        const response = await fetch(`${url}/health/ready`)
        const report = (await response.json()) as {
          dependencies: Record<string, { status: string }>
        }
        expect(report.dependencies[dependency]?.status).toBe('down')
      }),
    /**
     * Cuts the connection during the order's first call, and runs `meanwhile` before the target responds to the
     * call.
     */
    cutDuringCall(connection: Relay, order: string, meanwhile: () => Promise<void>): Promise<void> {
      const { promise, resolve, reject } = Promise.withResolvers<void>()
      target.intercept = async (call) => {
        if (call.path !== '/order' || call.order !== `O-${order}`) return false
        target.intercept = null
        connection.away()
        await meanwhile().then(resolve, reject)
        return false
      }
      return promise
    },
    /** Fails unless every order completes and its two steps call the target exactly once each. */
    async expectOnce(orders: readonly string[]): Promise<void> {
      await eventually(async () =>
        expect(await database.countRuns()).toEqual({
          runs: orders.length,
          completed: orders.length,
        }),
      )
      expect(await database.expectConsistent(orders, target)).toEqual({
        inDoubt: 0,
        repeatedCalls: 0,
      })
      expect(target.calls).toHaveLength(2 * orders.length)
      await eventually(async () => expect(await queues.ready()).toEqual({}))
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  }
}

const statusOf = async (database: DatabaseAssertions, order: string) => {
  const [row] = await database.sql<{ Status: string; StepName: string; Attempt: number }[]>`
    select "Status", "StepName", "Attempt" from "Order_Header" where "TransactionID" = ${order}`
  return row === undefined ? null : { ...row }
}

it(
  'if the call of a step ends while PostgreSQL is unavailable, the step is recorded later and the call is not repeated',
  { timeout: ROUNDS * 30_000 },
  async ({ annotate }) => {
    await using fixture = await startFixture()
    const orders: string[] = []
    for (let round = 1; round <= ROUNDS; round += 1) {
      const order = `r${round}`
      const cut = fixture.cutDuringCall(fixture.postgres, order, () =>
        fixture.waitUntilDown('postgres'),
      )
      expect(await fixture.queue(order)).toBe(202)
      await cut
      expect(await fixture.queue(`rejected${round}`)).toBe(503)
      expect(await statusOf(fixture.database, order)).toEqual({
        Status: 'Running',
        StepName: 'order',
        Attempt: 1,
      })
      fixture.postgres.restore()
      orders.push(order)
      await fixture.expectOnce(orders)
    }
    await annotate(
      `PostgreSQL unavailable during the call of a step: ${ROUNDS} of ${ROUNDS} outcomes recorded when PostgreSQL was available again, 0 calls repeated`,
      'measurement',
    )
  },
)

it(
  'the coordinator stores step outcomes and accepts orders while RabbitMQ is unavailable, and publishes the messages later',
  { timeout: ROUNDS * 30_000 },
  async ({ annotate }) => {
    await using fixture = await startFixture()
    const orders: string[] = []
    for (let round = 1; round <= ROUNDS; round += 1) {
      const [order, accepted] = [`r${round}`, `accepted${round}`]
      const cut = fixture.cutDuringCall(fixture.rabbitmq, order, () =>
        fixture.waitUntilDown('rabbitmq'),
      )
      expect(await fixture.queue(order)).toBe(202)
      await cut
      expect(await fixture.queue(accepted)).toBe(202)
      await eventually(async () =>
        expect(await statusOf(fixture.database, order)).toEqual({
          Status: 'Running',
          StepName: 'report',
          Attempt: 0,
        }),
      )
      expect(await statusOf(fixture.database, accepted)).toMatchObject({ Status: 'Queued' })
      fixture.rabbitmq.restore()
      orders.push(order, accepted)
      await fixture.expectOnce(orders)
    }
    await annotate(
      `RabbitMQ unavailable during the call of a step: ${ROUNDS} of ${ROUNDS} outcomes recorded at once, and the runs continued when RabbitMQ was available again, 0 calls repeated`,
      'measurement',
    )
  },
)
