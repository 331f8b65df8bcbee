/**
 * Every point of the step protocol at which a coordinator can die, as docs/coordinator.md lists them: what it
 * leaves behind, and how another coordinator goes on from there.
 */
import { eventually } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { type ServiceProcess, startSystem, type System } from '../support/system.ts'
import { type Books, openBooks } from './support/books.ts'
import { addressOf, dyingMain, post, queueOrder, startBeside } from './support/coordinators.ts'
import { scale } from './support/scale.ts'
import { startTarget, type Target } from './support/target.ts'

const ROUNDS = scale({ test: 1, faults: 10 })
/** Five of them start their systems at the same time. */
const PATIENCE_MS = 60_000 + ROUNDS * 30_000

interface Left {
  readonly Status: string
  readonly StepName: string
  readonly Version: number
  readonly Attempt: number
  /** Items that are completed. */
  readonly items: number
}

interface CrashPoint {
  readonly id: string
  readonly name: string
  /** The point of `failpoint-main.ts`; or null: its target kills it in the call. */
  readonly diesAt: string | null
  /** The row it leaves; null for none. */
  readonly left: Left | null
  /** Messages it leaves, by queue; null where either may be. */
  readonly messages: Readonly<Record<string, number>> | null
  /** What else goes wrong before another one goes on. */
  readonly meanwhile?: (world: World, id: string) => Promise<void>
  readonly orderCalls: 1 | 2
  /** Attempts that are charged to the dead worker. */
  readonly inDoubt: 0 | 1
}

const queued: Left = { Status: 'Queued', StepName: 'order', Version: 0, Attempt: 0, items: 0 }
const claimed: Left = { ...queued, Status: 'Running', Version: 1, Attempt: 1 }
const recorded: Left = { ...claimed, StepName: 'report', Version: 2, Attempt: 0, items: 1 }
const orderMessage = { 'steps.OrderProcess.order': 1 }
const bothMessages = { ...orderMessage, 'steps.OrderProcess.report': 1 }
const untouched = { orderCalls: 1, inDoubt: 0 } as const
const inCall = { orderCalls: 2, inDoubt: 1 } as const

const crashPoints: readonly CrashPoint[] = [
  {
    id: 'C1',
    name: 'before the insert: nothing is there, the caller asks again',
    diesAt: 'before insert',
    left: null,
    messages: {},
    meanwhile: async ({ system, survivor }, id) =>
      expect(await queueOrder(system, survivor.url, id)).toBe(202),
    ...untouched,
  },
  {
    id: 'C2',
    name: 'after the insert, before the message: the pull sends it',
    diesAt: 'inserted',
    left: queued,
    messages: {},
    ...untouched,
  },
  {
    id: 'C3',
    name: 'between message and confirm: it may be there twice, and runs once',
    diesAt: 'publishing',
    left: queued,
    messages: null,
    ...untouched,
  },
  {
    id: 'C4',
    name: 'the broker loses the message of the next step: the pull sends it again',
    diesAt: 'published',
    left: recorded,
    messages: bothMessages,
    meanwhile: async ({ books }) => expect(await books.loseMessages('report')).toBe(1),
    ...untouched,
  },
  {
    id: 'C5',
    name: 'after the delivery, before the claim: it is delivered to another',
    diesAt: 'received',
    left: queued,
    messages: orderMessage,
    ...untouched,
  },
  {
    id: 'C6',
    name: 'after the claim, before the call: the attempt is charged, nothing is called twice',
    diesAt: 'claimed',
    left: claimed,
    messages: orderMessage,
    orderCalls: 1,
    inDoubt: 1,
  },
  {
    id: 'C7',
    name: 'in the call: it is made again under the same key',
    diesAt: null,
    left: claimed,
    messages: orderMessage,
    ...inCall,
  },
  {
    id: 'C7 (answered)',
    name: 'after the answer, before the commit: it is made again under the same key',
    diesAt: 'answered',
    left: claimed,
    messages: orderMessage,
    ...inCall,
  },
  {
    id: 'C8',
    name: 'after the commit, before the message of the next step: the pull sends it',
    diesAt: 'recorded',
    left: recorded,
    messages: orderMessage,
    ...untouched,
  },
  {
    id: 'C9',
    name: 'after the confirm, before the ack: the old message comes again, and is stale',
    diesAt: 'published',
    left: recorded,
    messages: bothMessages,
    ...untouched,
  },
  {
    id: 'C14',
    name: 'and Postgres loses its last commit: the message from the future is refused',
    diesAt: 'published',
    left: recorded,
    messages: bothMessages,
    meanwhile: ({ books }, id) => loseLastCommit(books, id),
    ...inCall,
  },
]

/** As after a fail-over to a replica that had the claim, and not yet the result. */
async function loseLastCommit({ sql }: Books, id: string): Promise<void> {
  await sql.begin(async (transaction) => {
    await transaction`
      update "Order_Header" set "StepName" = 'order', "Version" = 1, "Attempt" = 1,
        "LeaseOwner" = 'the dead one', "StartedAt" = now(),
        "LeaseUntil" = now() + interval '30 s', "NextSweepAt" = now() + interval '30 s'
      where "TransactionID" = ${id}`
    await transaction`delete from "Order_Item" where "TransactionID" = ${id}`
    await transaction`delete from "Order_Attempt" where "TransactionID" = ${id}`
  })
}

/** A system with a coordinator that looks on, until its internet is there. */
interface World extends AsyncDisposable {
  readonly system: System
  readonly target: Target
  readonly books: Books
  readonly survivor: ServiceProcess
  /** Resolves when the survivor takes no steps, or takes them again. */
  rest(): Promise<void>
  goOn(): Promise<void>
  /** Another coordinator, which takes steps and dies at the point. */
  dying(diesAt: string | null, order: string): Promise<{ process: ServiceProcess; url: string }>
}

async function startWorld(): Promise<World> {
  await using stack = new AsyncDisposableStack()
  const target = stack.use(await startTarget())
  const system = stack.use(await startSystem([]))
  const env = {
    DEMO_API_URL: target.url,
    LOCAL_PULL_SECONDS: '0.2',
    REMOTE_PULL_SECONDS: '0.3',
    // The pulls look often and find only what a test makes due: no message but those of the table.
    SWEEP_MS: '60000',
  }
  target.isOnline = false
  const watched = { ...env, INTERNET_PROBES: target.probe, PROBE_MS: '50' }
  const survivor = system.start('coordinator', watched, dyingMain)
  await system.ready('coordinator')
  const books = stack.use(await openBooks(system))
  const owned = stack.move()
  return {
    system,
    target,
    books,
    survivor,
    async rest() {
      target.isOnline = false
      await eventually(async () => expect(await books.consumers()).toBe(0))
      // Late copies for runs that are over: what is counted next is of the next order alone.
      for (const step of ['order', 'report', 'csv'] as const) await books.loseMessages(step)
    },
    async goOn() {
      target.isOnline = true
      await eventually(async () => expect(await books.consumers()).toBe(1))
    },
    async dying(diesAt, order) {
      const point = diesAt === null ? {} : { DIES_AT: diesAt, DIES_WITH: order }
      const process = startBeside(system, { ...env, ...point }, dyingMain)
      const url = await addressOf(process)
      await eventually(async () => expect(await books.consumers()).not.toBe(0))
      return { process, url }
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  }
}

const rowOf = async ({ sql }: Books, id: string): Promise<Left | null> => {
  const [row] = await sql<Left[]>`
    select "Status", "StepName", "Version", "Attempt",
      (select count(*)::int from "Order_Item" i
        where i."TransactionID" = h."TransactionID" and "Status" = 'Completed') as items
    from "Order_Header" h where "TransactionID" = ${id}`
  return row === undefined ? null : { ...row }
}

/** It dies by itself; the signal here only waits for the end. */
async function deathOf(
  process: ServiceProcess,
  { diesAt }: { readonly diesAt: string | null },
  target: Target,
): Promise<void> {
  await eventually(() => {
    if (diesAt === null) expect(target.intercept).toBeNull()
    else expect(process.output()).toContain(`died ${diesAt}`)
  })
  await process.stop('SIGKILL')
}

const completed = (books: Books, count: number): Promise<void> =>
  eventually(async () => expect(await books.count()).toEqual({ headers: count, completed: count }))

describe('a coordinator that dies', { concurrent: true }, () => {
  it.for(crashPoints)('$id $name', { timeout: PATIENCE_MS }, async (point, { annotate }) => {
    await using world = await startWorld()
    const { books, target, system } = world
    let slowestMs = 0
    for (let round = 1; round <= ROUNDS; round += 1) {
      const order = `r${round}`
      await world.rest()
      const { process, url } = await world.dying(point.diesAt, order)
      if (point.diesAt === null)
        target.intercept = async ({ path }) => {
          if (path !== '/order') return false
          target.intercept = null
          await process.stop('SIGKILL')
          return true
        }
      await queueOrder(system, url, order)
      await deathOf(process, point, target)
      expect(await rowOf(books, order)).toEqual(point.left)
      if (point.messages !== null)
        await eventually(async () => expect(await books.waiting()).toEqual(point.messages))

      await point.meanwhile?.(world, order)
      await books.passTime()
      const goesOnAt = performance.now()
      await world.goOn()
      await completed(books, round)
      slowestMs = Math.max(slowestMs, performance.now() - goesOnAt)
      const calls = target.calls.filter((call) => call.order === `O-${order}`)
      expect(calls.filter(({ path }) => path === '/order')).toHaveLength(point.orderCalls)
      expect(calls.filter(({ path }) => path === '/report')).toHaveLength(1)
      await eventually(async () => expect(await books.waiting()).toEqual({}))
    }
    const ids = Array.from({ length: ROUNDS }, (_, round) => `r${round + 1}`)
    expect(await books.balance(ids, target)).toEqual({
      inDoubt: point.inDoubt * ROUNDS,
      repeatedCalls: (point.orderCalls - 1) * ROUNDS,
    })
    await annotate(
      `${point.id}, ${point.name}: ${ROUNDS} of ${ROUNDS}, complete at most ${(slowestMs / 1_000).toFixed(1)} s after any lease was over`,
      'figure',
    )
  })

  it.for([
    ['before replay', false],
    ['replaying', null],
    ['replayed', true],
  ] as const)(
    'C10 (%s): the replay is there whole or not at all, and runs once',
    { timeout: PATIENCE_MS },
    async ([diesAt, isThere], { annotate }) => {
      await using world = await startWorld()
      const { books, target, system } = world
      for (let round = 1; round <= ROUNDS; round += 1) {
        const order = `r${round}`
        await world.goOn()
        await queueOrder(system, world.survivor.url, order)
        await completed(books, 2 * round - 1)
        await world.rest()
        const { process, url } = await world.dying(diesAt, order)
        await post(system, url, `/${order}/replays`, {})
        await deathOf(process, { diesAt }, target)
        const replays = async () =>
          (
            await books.sql<{ id: number }[]>`
              select "ReplayID" as id from "Order_Header" where "TransactionID" = ${order}
              order by 1`
          ).map((row) => row.id)
        // What was on its way to Postgres may arrive after the death of who sent it.
        const again = await post(system, world.survivor.url, `/${order}/replays`, {})
        if (isThere === null) expect([202, 409]).toContain(again)
        else expect(again).toBe(isThere ? 409 : 202)
        expect(await replays()).toEqual([0, 1])
        await books.passTime()
        await world.goOn()
        await completed(books, 2 * round)
        const keys = target.calls
          .filter((call) => call.order === `O-${order}`)
          .map(({ idempotencyKey }) => idempotencyKey)
        expect(keys.toSorted()).toEqual(
          [0, 1]
            .flatMap((replay) => ['order', 'report'].map((step) => `${replay}/${step}`))
            .map((end) => `OrderProcess/${order}/${end}`),
        )
      }
      await annotate(
        `C10, at a replay (${diesAt}): ${ROUNDS} of ${ROUNDS}, the replay is there whole or not at all, and runs once`,
        'figure',
      )
    },
  )
})
