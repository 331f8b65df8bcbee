import { afterAll, describe, expect, it, vi } from 'vitest'
import { eventually } from '../support/eventually.ts'
import { startSystem } from '../support/system.ts'
import { openBooks } from './support/books.ts'
import { orders, queueBulk } from './support/coordinators.ts'
import { countStepMessages } from './support/message-counter.ts'
import { startMortalRabbitMq } from './support/mortal-servers.ts'
import { isFaultRun } from './support/scale.ts'
import { startTarget } from './support/target.ts'

const BEFORE = 200
const MEANWHILE = 100

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
    target.latencyMs = 200
    await system.ready('coordinator')
    await using books = await openBooks(system)
    await using messages = await countStepMessages(system)
    const [before, meanwhile] = [orders(BEFORE, 'b'), orders(MEANWHILE, 'm')]
    await queueBulk(system, coordinator.url, before)
    await eventually(() => expect(target.calls.length).toBeGreaterThan(0))

    await rabbitmq.setAlarm(true)
    await eventually(async () => {
      const answer = await fetch(`${coordinator.url}/health/ready`)
      expect([answer.status, await answer.text()]).toEqual([
        503,
        expect.stringContaining('blocked by a resource alarm'),
      ])
    })
    await queueBulk(system, coordinator.url, meanwhile)
    // What was in hand is recorded, and nothing more is started.
    const rest = async () => {
      const [row] = await books.sql<{ leased: number; untouched: number }[]>`
        select (count(*) filter (where "LeaseUntil" is not null))::int as leased,
          (count(*) filter (where "TransactionID" like 'm%' and "Version" = 0))::int as untouched
        from "Order_Header"`
      return { ...row }
    }
    await eventually(async () => expect(await rest()).toEqual({ leased: 0, untouched: MEANWHILE }))
    const inTime = (await books.count()).completed
    expect(inTime).toBeLessThan(BEFORE)

    target.latencyMs = 0
    await rabbitmq.setAlarm(false)
    const overAt = performance.now()
    const all = BEFORE + MEANWHILE
    await eventually(
      async () => expect(await books.count()).toEqual({ headers: all, completed: all }),
      60,
    )
    const seconds = ((performance.now() - overAt) / 1_000).toFixed(1)
    await system.ready('coordinator')
    await eventually(async () => expect(await books.waiting()).toEqual({}))
    const ids = [...before, ...meanwhile].map(({ TransactionID }) => TransactionID)
    expect(await books.balance(ids, target)).toEqual({ inDoubt: 0, repeatedCalls: 0 })
    await annotate(
      `C16, memory alarm of RabbitMQ with ${all - inTime} orders unfinished, ${MEANWHILE} of them accepted meanwhile: all complete ${seconds} s after it, no call repeated, ${(messages.published / all).toFixed(2)} messages for each order`,
      'figure',
    )
  }, 180_000)
})
