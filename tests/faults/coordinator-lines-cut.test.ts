/** C12 and C13 of docs/coordinator.md: a backend is away while a coordinator has a step in its hand. */
import { eventually } from '@integration-host/shared/test-support/eventually'
import { type Relay, startRelay } from '@integration-host/shared/test-support/relay'
import { expect, it } from 'vitest'
import { backend, startSystem } from '../support/system.ts'
import { openBooks } from './support/books.ts'
import { queueOrder } from './support/coordinators.ts'
import { scale } from './support/scale.ts'
import { startTarget } from './support/target.ts'

const ROUNDS = scale({ test: 1, faults: 10 })

/** A coordinator whose lines to its backends can be cut. */
async function startWorld() {
  await using stack = new AsyncDisposableStack()
  const target = stack.use(await startTarget())
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
  const books = stack.use(await openBooks(system))
  const owned = stack.move()
  return {
    target,
    books,
    postgres,
    rabbitmq,
    queue: (order: string) => queueOrder(system, url, order),
    /** Resolves when the coordinator has found out. */
    notices: (dependency: string) =>
      eventually(async () => {
        const answer = await fetch(`${url}/health/ready`)
        const report = (await answer.json()) as { dependencies: Record<string, { status: string }> }
        expect(report.dependencies[dependency]?.status).toBe('down')
      }),
    /** Cuts the line in the order's first call, does `meanwhile`, and only then lets the call be answered. */
    cutInCall(line: Relay, order: string, meanwhile: () => Promise<void>): Promise<void> {
      const { promise, resolve, reject } = Promise.withResolvers<void>()
      target.intercept = async (call) => {
        if (call.path !== '/order' || call.order !== `O-${order}`) return false
        target.intercept = null
        line.away()
        await meanwhile().then(resolve, reject)
        return false
      }
      return promise
    },
    /** Every order is complete, and no call was made but its own two. */
    async expectOnce(orders: readonly string[]): Promise<void> {
      await eventually(async () =>
        expect(await books.count()).toEqual({ headers: orders.length, completed: orders.length }),
      )
      expect(await books.balance(orders, target)).toEqual({ inDoubt: 0, repeatedCalls: 0 })
      expect(target.calls).toHaveLength(2 * orders.length)
      await eventually(async () => expect(await books.waiting()).toEqual({}))
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  }
}

const statusOf = async (books: Awaited<ReturnType<typeof openBooks>>, order: string) => {
  const [row] = await books.sql<{ Status: string; StepName: string; Attempt: number }[]>`
    select "Status", "StepName", "Attempt" from "Order_Header" where "TransactionID" = ${order}`
  return row === undefined ? null : { ...row }
}

it(
  'C12 PostgreSQL is away: outcomes and claims wait for it, and nothing is called again',
  { timeout: ROUNDS * 30_000 },
  async ({ annotate }) => {
    await using world = await startWorld()
    const orders: string[] = []
    for (let round = 1; round <= ROUNDS; round += 1) {
      const order = `r${round}`
      const cut = world.cutInCall(world.postgres, order, () => world.notices('postgres'))
      expect(await world.queue(order)).toBe(202)
      await cut
      expect(await world.queue(`refused${round}`)).toBe(503)
      expect(await statusOf(world.books, order)).toEqual({
        Status: 'Running',
        StepName: 'order',
        Attempt: 1,
      })
      world.postgres.restore()
      orders.push(order)
      await world.expectOnce(orders)
    }
    await annotate(
      `C12, PostgreSQL away in the call: ${ROUNDS} of ${ROUNDS} recorded when it was back, 0 calls repeated`,
      'figure',
    )
  },
)

it(
  'C13 RabbitMQ is away: outcomes are recorded, orders taken, and the pull sends what was not sent',
  { timeout: ROUNDS * 30_000 },
  async ({ annotate }) => {
    await using world = await startWorld()
    const orders: string[] = []
    for (let round = 1; round <= ROUNDS; round += 1) {
      const [order, taken] = [`r${round}`, `taken${round}`]
      const cut = world.cutInCall(world.rabbitmq, order, () => world.notices('rabbitmq'))
      expect(await world.queue(order)).toBe(202)
      await cut
      expect(await world.queue(taken)).toBe(202)
      await eventually(async () =>
        expect(await statusOf(world.books, order)).toEqual({
          Status: 'Running',
          StepName: 'report',
          Attempt: 0,
        }),
      )
      expect(await statusOf(world.books, taken)).toMatchObject({ Status: 'Queued' })
      world.rabbitmq.restore()
      orders.push(order, taken)
      await world.expectOnce(orders)
    }
    await annotate(
      `C13, RabbitMQ away in the call: ${ROUNDS} of ${ROUNDS} recorded at once and gone on with when it was back, 0 calls repeated`,
      'figure',
    )
  },
)
