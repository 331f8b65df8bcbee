import { deadQueue, STEPS_EXCHANGE } from '@integration-host/shared/contracts/step-message'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { connect } from 'amqplib'
import { describe, expect, it } from 'vitest'
import { backend, startSystem } from '../support/system.ts'
import { openBooks } from './support/books.ts'
import { orders, queueBulk } from './support/coordinators.ts'
import { isFaultRun } from './support/scale.ts'
import { startTarget } from './support/target.ts'

const CALLERS = 1_000
const HEALTHY = 1_200
const POISON_OF_A_KIND = 15
const RUNS = 9

describe.runIf(isFaultRun)('a crowd at the door', () => {
  it('that queues the same order a thousand times at once gets one run', async ({ annotate }) => {
    await using target = await startTarget()
    await using system = await startSystem([])
    system.start('coordinator', { DEMO_API_URL: target.url })
    system.start('demo-api')
    await system.ready('coordinator', 'demo-api')
    await using books = await openBooks(system)
    let again = 0
    const queue = async (): Promise<string> => {
      const answer = await fetch(`${system.url('demo-api')}/queue?number=7`)
      const text = await answer.text()
      if (answer.status !== 503) return `${answer.status} ${text}`
      // Not answered in time on a busy machine, or queued all the same: a caller asks again.
      again += 1
      return queue()
    }
    const answers = await Promise.all(Array.from({ length: CALLERS }, queue))
    expect(new Set(answers)).toEqual(new Set(['200 Enqueued 7']))
    await eventually(async () => expect(await books.count()).toEqual({ headers: 1, completed: 1 }))
    expect(await books.balance(['7'], target)).toEqual({ inDoubt: 0, repeatedCalls: 0 })
    expect(target.calls).toHaveLength(2)
    await annotate(
      `${CALLERS} concurrent GET /queue?number=7: 1 header, 1 run, 2 calls; ${again} were told 503 and asked again`,
      'figure',
    )
  }, 60_000)
})

const good = {
  v: 1,
  Process: 'OrderProcess',
  TransactionID: 'x',
  ReplayID: 0,
  Step: 'order',
  Version: 0,
}
/** All `malformed`, but for the last three. */
const poison: readonly string[] = [
  'not json',
  '',
  '\u{0}',
  '[]',
  'null',
  '{}',
  'x'.repeat(100_000),
  ...[
    { v: 2 },
    { extra: 1 },
    { TransactionID: '' },
    { TransactionID: 'x'.repeat(129) },
    { TransactionID: 'a\nb' },
    { ReplayID: -1 },
    { ReplayID: 1.5 },
    { Version: '0' },
    { Version: 2_147_483_648 },
    { Step: '../x' },
    { Step: 'nowhere' },
    { Step: 'csv' },
    { Process: 'Nobody' },
  ].map((fault) => JSON.stringify({ ...good, ...fault })),
]

describe.runIf(isFaultRun)('poison messages among healthy ones', () => {
  it('reach the dead queue with their reason, and healthy work goes on at its pace', async ({
    annotate,
  }) => {
    await using target = await startTarget()
    await using system = await startSystem([])
    const coordinator = system.start('coordinator', { DEMO_API_URL: target.url })
    await system.ready('coordinator')
    await using books = await openBooks(system)
    const connection = await connect(backend('TEST_AMQP_URL'))
    const channel = await connection.createConfirmChannel()
    let done = 0
    let buried = 0
    const msWith = async (name: string, isPoisoned: boolean): Promise<number> => {
      const startedAt = performance.now()
      if (isPoisoned) {
        for (let n = 0; n < POISON_OF_A_KIND; n += 1)
          for (const content of poison)
            channel.publish(
              system.amqpPrefix + STEPS_EXCHANGE,
              'OrderProcess.order',
              Buffer.from(content),
            )
        buried += POISON_OF_A_KIND * poison.length
      }
      await queueBulk(system, coordinator.url, orders(HEALTHY, name))
      done += HEALTHY
      await eventually(async () => expect((await books.count()).completed).toBe(done))
      const ms = performance.now() - startedAt
      await eventually(async () =>
        expect(await books.waiting()).toEqual(buried === 0 ? {} : { 'dead.OrderProcess': buried }),
      )
      return ms
    }
    await msWith('warm', false)
    // In pairs, and each way round: what else the machine does meets both alike.
    const pairs: { healthy: number; poisoned: number; slower: number }[] = []
    for (let run = 0; run < RUNS; run += 1) {
      const isPoisonedFirst = run % 2 === 1
      const first = await msWith(`a${run}-`, isPoisonedFirst)
      const second = await msWith(`b${run}-`, !isPoisonedFirst)
      const [healthy, poisoned] = isPoisonedFirst ? [second, first] : [first, second]
      pairs.push({ healthy, poisoned, slower: poisoned / healthy - 1 })
    }
    const reasons: Record<string, number> = {}
    await channel.consume(
      system.amqpPrefix + deadQueue('OrderProcess'),
      (message) => {
        const reason = String(message?.properties.headers?.['reason'])
        reasons[reason] = (reasons[reason] ?? 0) + 1
      },
      { noAck: true },
    )
    const ofAKind = RUNS * POISON_OF_A_KIND
    await eventually(() =>
      expect(reasons).toEqual({
        malformed: (poison.length - 3) * ofAKind,
        unknown_step: ofAKind,
        wrong_queue: ofAKind,
        unknown_process: ofAKind,
      }),
    )
    await connection.close()
    const median = (of: 'healthy' | 'poisoned' | 'slower'): number =>
      pairs.map((pair) => pair[of]).toSorted((a, b) => a - b)[(RUNS - 1) / 2] ?? 0
    // Printed, not asserted: it is a time.
    const slower = (median('slower') * 100).toFixed(0)
    await annotate(
      `${poison.length} kinds of poison, ${buried} messages: all in the dead queue with their reason; ${HEALTHY} healthy orders took ${median('healthy').toFixed(0)} ms alone and ${median('poisoned').toFixed(0)} ms among ${POISON_OF_A_KIND * poison.length} poison messages (medians of ${RUNS}; ${slower} % slower, median of the pairs)`,
      'figure',
    )
  }, 300_000)
})
