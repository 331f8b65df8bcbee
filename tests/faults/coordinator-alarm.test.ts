import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, describe, expect, it, vi } from 'vitest'
import { startSystem } from '../support/system.ts'
import { openDatabase } from '../support/faults/database-assertions.ts'
import { orders, queueOrders } from '../support/faults/coordinators.ts'
import { countStepMessages } from '../support/faults/message-counter.ts'
import { startRestartableRabbitMq } from '../support/backends/restartable-servers.ts'
import { isFaultRun } from '../support/faults/scale.ts'
import { stepQueuesOf } from '../support/faults/step-queues.ts'
import { startStepTarget } from '../support/fakes/step-target.ts'

const ALARMS = 10
const BEFORE = 100
const MEANWHILE = 30

describe.runIf(isFaultRun)('a RabbitMQ broker with a memory alarm', () => {
  afterAll(() => void vi.unstubAllEnvs())

  it('the coordinator accepts orders during a RabbitMQ memory alarm, and runs each order once after the alarm', async ({
    annotate,
  }) => {
    await using rabbitmq = await startRestartableRabbitMq()
    vi.stubEnv('TEST_AMQP_URL', rabbitmq.url)
    await using target = await startStepTarget()
    await using system = await startSystem([])
    const coordinator = system.start('coordinator', {
      DEMO_API_URL: target.url,
      LOCAL_PULL_SECONDS: '1',
      REMOTE_PULL_SECONDS: '2',
      // Only four steps run at a time, and each takes 200 ms. Therefore steps are in flight when the alarm is
      // raised.
      PREFETCH: '4',
    })
    await system.ready('coordinator')
    await using database = await openDatabase(system)
    const queues = stepQueuesOf(system)
    await using messages = await countStepMessages(system)
    const ids: string[] = []
    let unfinished = 0
    let slowestMs = 0

    const queue = async (count: number, prefix: string): Promise<void> => {
      const some = orders(count, prefix)
      ids.push(...some.map(({ TransactionID }) => TransactionID))
      await queueOrders(system, coordinator.url, some)
    }
    /** Counts the leased runs, and the runs that were queued during the memory alarm and have not started. */
    const progress = async () => {
      const [row] = await database.sql<{ leased: number; untouched: number }[]>`
        select (count(*) filter (where "LeaseUntil" is not null))::int as leased,
          (count(*) filter (where "TransactionID" like 'm%' and "Version" = 0))::int as untouched
        from "Order_Header"`
      return { ...row }
    }

    for (let alarm = 0; alarm < ALARMS; alarm += 1) {
      target.latencyMs = 200
      // The target responds only after the alarm was raised. The coordinator must publish a message during the alarm,
      // because RabbitMQ reports an alarm only to connections that publish.
      const isOn = Promise.withResolvers<void>()
      target.intercept = () => isOn.promise.then(() => false)
      const callsBefore = target.calls.length
      await queue(BEFORE, `b${alarm}-`)
      await eventually(() => expect(target.calls.length).toBeGreaterThan(callsBefore))

      await rabbitmq.setAlarm(true)
      isOn.resolve()
      await eventually(async () => {
        const response = await fetch(`${coordinator.url}/health/ready`)
        expect([response.status, await response.text()]).toEqual([
          503,
          expect.stringContaining('blocked by a resource alarm'),
        ])
      })
      await queue(MEANWHILE, `m${alarm}-`)
      await eventually(async () =>
        expect(await progress()).toEqual({ leased: 0, untouched: MEANWHILE }),
      )
      const remaining = ids.length - (await database.countRuns()).completed
      expect(remaining).toBeGreaterThan(MEANWHILE)
      unfinished += remaining

      target.intercept = null
      target.latencyMs = 0
      await rabbitmq.setAlarm(false)
      const clearedAt = performance.now()
      await eventually(
        async () =>
          expect(await database.countRuns()).toEqual({ runs: ids.length, completed: ids.length }),
        { seconds: 60 },
      )
      slowestMs = Math.max(slowestMs, performance.now() - clearedAt)
      await system.ready('coordinator')
    }
    await eventually(async () => expect(await queues.ready()).toEqual({}))
    expect(await database.expectConsistent(ids, target)).toEqual({ inDoubt: 0, repeatedCalls: 0 })
    await annotate(
      `${ALARMS} RabbitMQ memory alarms with ${unfinished} unfinished orders, ${ALARMS * MEANWHILE} of them accepted during an alarm: all orders completed at most ${(slowestMs / 1_000).toFixed(1)} s after an alarm was cleared, no call repeated, ${(messages.published / ids.length).toFixed(2)} messages for each order`,
      'measurement',
    )
  }, 300_000)
})
