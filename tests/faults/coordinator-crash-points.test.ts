/**
 * Kills a coordinator at every point of the step protocol that docs/coordinator.md lists. For each point the tests
 * check the remaining row and messages. Then another coordinator must complete the order.
 */
import { eventually } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { type ServiceProcess, startSystem, type System } from '../support/system.ts'
import { type DatabaseAssertions, openDatabase } from '../support/faults/database-assertions.ts'
import {
  orders,
  post,
  queueOrder,
  startAnotherCoordinator,
} from '../support/faults/coordinators.ts'
import { coordinatorWithFailpoints, diedAt } from '../support/processes/failpoints.ts'
import { listeningUrl } from '@integration-host/shared/test-support/start-process'
import { scale } from '../support/faults/scale.ts'
import { type StepQueues, STEPS, stepQueuesOf } from '../support/faults/step-queues.ts'
import { startStepTarget, type StepTarget } from '../support/fakes/step-target.ts'

const ROUNDS = scale({ test: 1, faults: 10 })
/** Up to five tests start their services at the same time, so each start takes longer than usual. */
const TIMEOUT_MS = 150_000 + ROUNDS * 30_000

interface RowState {
  readonly Status: string
  readonly StepName: string
  readonly Version: number
  readonly Attempt: number
  /** Number of completed steps, each of which has a row in the table of items. */
  readonly items: number
}

interface CrashPoint {
  readonly name: string
  /**
   * The failpoint at which the coordinator kills itself. If there is no failpoint (`null`), the fake target kills the
   * coordinator during the call.
   */
  readonly failpoint: string | null
  /** The row of the run after the crash; `null` if there is no row. */
  readonly row: RowState | null
  /** The number of messages in each queue after the crash; `null` if the number depends on timing. */
  readonly messages: Readonly<Record<string, number>> | null
  /** Whether the process has `dispatch: 'inline'`, so that the insertion also claims the run. */
  readonly isInline?: true
  /** Called after the crash, before the surviving coordinator consumes steps again. */
  readonly meanwhile?: (fixture: Fixture, id: string) => Promise<void>
  readonly orderCalls: 1 | 2
  /** Number of attempts that ended without a result because their worker died. */
  readonly inDoubt: 0 | 1
}

const queued: RowState = { Status: 'Queued', StepName: 'order', Version: 0, Attempt: 0, items: 0 }
const claimed: RowState = { ...queued, Status: 'Running', Version: 1, Attempt: 1 }
const recorded: RowState = { ...claimed, StepName: 'report', Version: 2, Attempt: 0, items: 1 }
const orderMessage = { 'steps.OrderProcess.order': 1 }
const bothMessages = { ...orderMessage, 'steps.OrderProcess.report': 1 }
const untouched = { orderCalls: 1, inDoubt: 0 } as const
const inCall = { orderCalls: 2, inDoubt: 1 } as const

const crashPoints: readonly CrashPoint[] = [
  {
    name: 'a coordinator that is killed before it inserts a run stores nothing, and the caller repeats the request',
    failpoint: 'before insert',
    row: null,
    messages: {},
    meanwhile: async ({ system, survivor }, id) =>
      expect(await queueOrder(system, survivor.url, id)).toBe(202),
    ...untouched,
  },
  {
    name: 'if a coordinator is killed between inserting a run and publishing its message, the sweeper publishes the message',
    failpoint: 'inserted',
    row: queued,
    messages: {},
    ...untouched,
  },
  {
    name: 'if a coordinator is killed right after it has inserted a run that starts on arrival, the attempt is counted, and the call is sent once',
    failpoint: 'inserted',
    isInline: true,
    row: claimed,
    messages: {},
    orderCalls: 1,
    inDoubt: 1,
  },
  {
    name: 'if a coordinator is killed between publishing a message and receiving its confirm, the message may be published twice, but the step runs once',
    failpoint: 'publishing',
    row: queued,
    messages: null,
    ...untouched,
  },
  {
    name: 'if a coordinator is killed after a message was confirmed and the broker loses this message, the sweeper publishes the message again',
    failpoint: 'published',
    row: recorded,
    messages: bothMessages,
    meanwhile: async ({ queues }) => expect(await queues.purge('report')).toBe(1),
    ...untouched,
  },
  {
    name: 'if a coordinator is killed between receiving a message and claiming the step, the message is redelivered',
    failpoint: 'received',
    row: queued,
    messages: orderMessage,
    ...untouched,
  },
  {
    name: 'if a coordinator is killed between claiming a step and sending its call, the attempt is counted, and the call is sent once',
    failpoint: 'claimed',
    row: claimed,
    messages: orderMessage,
    orderCalls: 1,
    inDoubt: 1,
  },
  {
    name: 'if a coordinator is killed during the call of a step, the call is repeated with the same idempotency key',
    failpoint: null,
    row: claimed,
    messages: orderMessage,
    ...inCall,
  },
  {
    name: 'if a coordinator is killed between receiving a response and committing the outcome, the call is repeated with the same idempotency key',
    failpoint: 'answered',
    row: claimed,
    messages: orderMessage,
    ...inCall,
  },
  {
    name: 'if a coordinator is killed between a commit and publishing the next message, the sweeper publishes the message',
    failpoint: 'recorded',
    row: recorded,
    messages: orderMessage,
    ...untouched,
  },
  {
    name: 'if a coordinator is killed before it acks the message of a recorded step, the message is redelivered and discarded as stale',
    failpoint: 'published',
    row: recorded,
    messages: bothMessages,
    ...untouched,
  },
  {
    name: 'if a coordinator is killed and PostgreSQL loses the last commit, the message that names the lost version is rejected',
    failpoint: 'published',
    row: recorded,
    messages: bothMessages,
    meanwhile: ({ database }, id) => loseLastCommit(database, id),
    ...inCall,
  },
]

/** Simulates a failover to a PostgreSQL standby that has received the claim of the step but not the step's result. */
async function loseLastCommit({ sql }: DatabaseAssertions, id: string): Promise<void> {
  await sql.begin(async (transaction) => {
    await transaction`
      update "Order_Header" set "StepName" = 'order', "Version" = 1, "Attempt" = 1,
        "LeaseOwner" = 'the killed worker', "StartedAt" = now(),
        "LeaseUntil" = now() + interval '30 s', "NextSweepAt" = now() + interval '30 s'
      where "TransactionID" = ${id}`
    await transaction`delete from "Order_Item" where "TransactionID" = ${id}`
    await transaction`delete from "Order_Attempt" where "TransactionID" = ${id}`
  })
}

/**
 * A system in which a test kills one coordinator. A second coordinator, the survivor, consumes no steps while its
 * internet probe fails.
 */
interface Fixture extends AsyncDisposable {
  readonly system: System
  readonly target: StepTarget
  readonly database: DatabaseAssertions
  readonly queues: StepQueues
  readonly survivor: ServiceProcess
  /** Resolves when the survivor has stopped consuming steps. */
  suspendSurvivor(): Promise<void>
  /** Resolves when the survivor consumes steps again. */
  resumeSurvivor(): Promise<void>
  /** Starts another coordinator that kills itself at the failpoint when it handles the order. */
  startDoomed(
    failpoint: string | null,
    order: string,
  ): Promise<{ process: ServiceProcess; url: string }>
}

async function startFixture({ isInline = false } = {}): Promise<Fixture> {
  await using stack = new AsyncDisposableStack()
  const target = stack.use(await startStepTarget())
  const system = stack.use(await startSystem([]))
  const env = {
    DEMO_API_URL: target.url,
    LOCAL_PULL_SECONDS: '0.2',
    REMOTE_PULL_SECONDS: '0.3',
    // The sweeper publishes messages only for runs that a test has made due. With this long interval, no other run
    // becomes due although the sweeper polls often.
    SWEEP_MS: '60000',
    ...(isInline && { PROCESS: 'inline' }),
  }
  target.isOnline = false
  const survivorEnv = { ...env, INTERNET_PROBES: target.probe, PROBE_MS: '50' }
  const survivor = system.start('coordinator', survivorEnv, coordinatorWithFailpoints)
  await system.ready('coordinator')
  const database = stack.use(await openDatabase(system))
  const queues = stepQueuesOf(system)
  const owned = stack.move()
  return {
    system,
    target,
    database,
    queues,
    survivor,
    async suspendSurvivor() {
      target.isOnline = false
      await eventually(async () => expect(await queues.consumers()).toBe(0))
      // Removes late duplicates of messages for completed runs. Only messages of the next order are then counted.
      for (const step of STEPS) await queues.purge(step)
    },
    async resumeSurvivor() {
      target.isOnline = true
      await eventually(async () => expect(await queues.consumers()).toBe(1))
    },
    async startDoomed(failpoint, order) {
      const point = failpoint === null ? {} : { DIES_AT: failpoint, DIES_WITH: order }
      const process = startAnotherCoordinator(
        system,
        { ...env, ...point },
        coordinatorWithFailpoints,
      )
      const url = await listeningUrl(process)
      await eventually(async () => expect(await queues.consumers()).not.toBe(0))
      return { process, url }
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  }
}

const rowOf = async ({ sql }: DatabaseAssertions, id: string): Promise<RowState | null> => {
  const [row] = await sql<RowState[]>`
    select "Status", "StepName", "Version", "Attempt",
      (select count(*)::int from "Order_Item" i
        where i."TransactionID" = h."TransactionID" and "Status" = 'Completed') as items
    from "Order_Header" h where "TransactionID" = ${id}`
  return row === undefined ? null : { ...row }
}

const untilCompleted = (database: DatabaseAssertions, count: number): Promise<void> =>
  eventually(async () =>
    expect(await database.countRuns()).toEqual({ runs: count, completed: count }),
  )

describe('a coordinator that is killed during a step', { concurrent: true }, () => {
  it.for(crashPoints)(
    'another coordinator completes the order: $name',
    { timeout: TIMEOUT_MS },
    async (point, { annotate }) => {
      await using fixture = await startFixture(point)
      const { database, queues, target, system } = fixture
      let slowestMs = 0
      for (let round = 1; round <= ROUNDS; round += 1) {
        const order = `r${round}`
        await fixture.suspendSurvivor()
        const { process, url } = await fixture.startDoomed(point.failpoint, order)
        if (point.failpoint === null)
          target.intercept = async ({ path }) => {
            if (path !== '/order') return false
            target.intercept = null
            await process.stop('SIGKILL')
            return true
          }
        await queueOrder(system, url, order)
        if (point.failpoint === null) {
          await eventually(() => expect(target.intercept).toBeNull())
          await process.ended
        } else await diedAt(process, point.failpoint)
        expect(await rowOf(database, order)).toEqual(point.row)
        if (point.messages !== null)
          await eventually(async () => expect(await queues.ready()).toEqual(point.messages))

        await point.meanwhile?.(fixture, order)
        await database.expireLeases()
        const resumedAt = performance.now()
        await fixture.resumeSurvivor()
        await untilCompleted(database, round)
        slowestMs = Math.max(slowestMs, performance.now() - resumedAt)
        const calls = target.calls.filter((call) => call.order === `O-${order}`)
        expect(calls.filter(({ path }) => path === '/order')).toHaveLength(point.orderCalls)
        expect(calls.filter(({ path }) => path === '/report')).toHaveLength(1)
        await eventually(async () => expect(await queues.ready()).toEqual({}))
      }
      const ids = Array.from({ length: ROUNDS }, (_, round) => `r${round + 1}`)
      expect(await database.expectConsistent(ids, target)).toEqual({
        inDoubt: point.inDoubt * ROUNDS,
        repeatedCalls: (point.orderCalls - 1) * ROUNDS,
      })
      await annotate(
        `${point.name}: ${ROUNDS} of ${ROUNDS}, completed at most ${(slowestMs / 1_000).toFixed(1)} s after the lease expired`,
        'measurement',
      )
    },
  )

  it(
    'if a coordinator is killed between two batches of a bulk request and the request is repeated, each order runs once',
    { timeout: TIMEOUT_MS },
    async ({ annotate }) => {
      await using fixture = await startFixture()
      const { database, target, system, survivor } = fixture
      const ids: string[] = []
      for (let round = 1; round <= ROUNDS; round += 1) {
        const transactions = orders(600, `r${round}-`)
        const secondBatch = transactions[500]?.TransactionID ?? ''
        await fixture.suspendSurvivor()
        const { process, url } = await fixture.startDoomed('before insert', secondBatch)
        expect(await post(system, url, '/bulk', transactions)).toBeNull()
        await diedAt(process, 'before insert')
        const { runs } = await database.countRuns()
        expect(runs).toBe(ids.length + 500)
        expect(await post(system, survivor.url, '/bulk', transactions)).toBe(200)
        ids.push(...transactions.map(({ TransactionID }) => TransactionID))
        await database.expireLeases()
        await fixture.resumeSurvivor()
        await untilCompleted(database, ids.length)
      }
      const { inDoubt, repeatedCalls } = await database.expectConsistent(ids, target)
      await annotate(
        `killed between two batches: ${ROUNDS} of ${ROUNDS}, ${inDoubt} attempts in doubt, ${repeatedCalls} calls repeated`,
        'measurement',
      )
    },
  )

  it.for([
    ['before replay', false],
    ['replaying', null],
    ['replayed', true],
  ] as const)(
    'if a coordinator is killed at "%s" and the replay is requested again, exactly one replay is stored and run',
    { timeout: TIMEOUT_MS },
    async ([failpoint, isStored], { annotate }) => {
      await using fixture = await startFixture()
      const { database, target, system } = fixture
      for (let round = 1; round <= ROUNDS; round += 1) {
        const order = `r${round}`
        await fixture.resumeSurvivor()
        await queueOrder(system, fixture.survivor.url, order)
        await untilCompleted(database, 2 * round - 1)
        await fixture.suspendSurvivor()
        const { process, url } = await fixture.startDoomed(failpoint, order)
        await post(system, url, `/${order}/replays`, {})
        await diedAt(process, failpoint)
        const replays = async () =>
          (
            await database.sql<{ id: number }[]>`
              select "ReplayID" as id from "Order_Header" where "TransactionID" = ${order}
              order by 1`
          ).map((row) => row.id)
        // PostgreSQL may still be executing the last statement of the dead coordinator, so the replay may or may not be
        // stored yet.
        const second = await post(system, fixture.survivor.url, `/${order}/replays`, {})
        if (isStored === null) expect([202, 409]).toContain(second)
        else expect(second).toBe(isStored ? 409 : 202)
        expect(await replays()).toEqual([0, 1])
        // The action log must have an entry for the replay if the replay was stored, and no entry otherwise.
        const actions = await database.sql<{ outcome: string }[]>`
          select "Outcome" as outcome from "Order_Action" where "TransactionID" = ${order}
          order by "ID"`
        expect(actions.map(({ outcome }) => outcome)).toEqual([
          'done',
          ...(second === 409 ? ['transaction_active'] : []),
        ])
        await database.expireLeases()
        await fixture.resumeSurvivor()
        await untilCompleted(database, 2 * round)
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
        `killed while storing a replay (failpoint "${failpoint}"): ${ROUNDS} of ${ROUNDS} replays stored completely or not at all, each runs once`,
        'measurement',
      )
    },
  )
})
