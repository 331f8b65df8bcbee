import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, describe, expect, it, vi } from 'vitest'
import { startSystem } from '../support/system.ts'
import { openBooks } from './support/books.ts'
import { orders, queueBulk } from './support/coordinators.ts'
import { countStepMessages } from './support/message-counter.ts'
import { startMortalRabbitMq } from './support/mortal-servers.ts'
import { isFaultRun } from './support/scale.ts'
import { startTarget } from './support/target.ts'

const ALARMS = 10
const BEFORE = 100
const MEANWHILE = 30

describe.runIf(isFaultRun)('C16: a RabbitMQ that raises an alarm', () => {
  afterAll(() => void vi.unstubAllEnvs())

  it('takes no messages: orders are accepted, wait, and go on when it is over', async ({
    annotate,
  }) => {
    await using rabbitmq = await startMortalRabbitMq()
    vi.stubEnv('TEST_AMQP_URL', rabbitmq.url)
    await using target = await startTarget()
    await using system = await startSystem([])
    const coordinator = system.start('coordinator', {
      DEMO_API_URL: target.url,
      LOCAL_PULL_SECONDS: '1',
      REMOTE_PULL_SECONDS: '2',
      // Few at a time, and slow ones: the alarm comes while steps are in hand.
      PREFETCH: '4',
    })
    await system.ready('coordinator')
    await using books = await openBooks(system)
    await using messages = await countStepMessages(system)
    const ids: string[] = []
    let unfinished = 0
    let slowestMs = 0

    const queue = async (count: number, prefix: string): Promise<void> => {
      const some = orders(count, prefix)
      ids.push(...some.map(({ TransactionID }) => TransactionID))
      await queueBulk(system, coordinator.url, some)
    }
    /** What was in hand is recorded, and nothing more is started. */
    const rest = async () => {
      const [row] = await books.sql<{ leased: number; untouched: number }[]>`
        select (count(*) filter (where "LeaseUntil" is not null))::int as leased,
          (count(*) filter (where "TransactionID" like 'm%' and "Version" = 0))::int as untouched
        from "Order_Header"`
      return { ...row }
    }

    for (let alarm = 0; alarm < ALARMS; alarm += 1) {
      target.latencyMs = 200
      // Held until the alarm is on, however long that takes: only who publishes is told of it.
      const isOn = Promise.withResolvers<void>()
      target.intercept = () => isOn.promise.then(() => false)
      const callsBefore = target.calls.length
      await queue(BEFORE, `b${alarm}-`)
      await eventually(() => expect(target.calls.length).toBeGreaterThan(callsBefore))

      await rabbitmq.setAlarm(true)
      isOn.resolve()
      await eventually(async () => {
        const answer = await fetch(`${coordinator.url}/health/ready`)
        expect([answer.status, await answer.text()]).toEqual([
          503,
          expect.stringContaining('blocked by a resource alarm'),
        ])
      })
      await queue(MEANWHILE, `m${alarm}-`)
      await eventually(async () =>
        expect(await rest()).toEqual({ leased: 0, untouched: MEANWHILE }),
      )
      const left = ids.length - (await books.count()).completed
      expect(left).toBeGreaterThan(MEANWHILE)
      unfinished += left

      target.intercept = null
      target.latencyMs = 0
      await rabbitmq.setAlarm(false)
      const overAt = performance.now()
      await eventually(
        async () =>
          expect(await books.count()).toEqual({ headers: ids.length, completed: ids.length }),
        { seconds: 60 },
      )
      slowestMs = Math.max(slowestMs, performance.now() - overAt)
      await system.ready('coordinator')
    }
    await eventually(async () => expect(await books.waiting()).toEqual({}))
    expect(await books.balance(ids, target)).toEqual({ inDoubt: 0, repeatedCalls: 0 })
    await annotate(
      `C16, ${ALARMS} memory alarms of RabbitMQ with ${unfinished} orders unfinished, ${ALARMS * MEANWHILE} of them accepted meanwhile: all complete ${(slowestMs / 1_000).toFixed(1)} s after each, no call repeated, ${(messages.published / ids.length).toFixed(2)} messages for each order`,
      'figure',
    )
  }, 300_000)
})
