import { STEPS_EXCHANGE } from '@integration-host/shared/contracts/topology'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { connect } from 'amqplib'
import { describe, expect, it } from 'vitest'
import { backend, startSystem } from '../support/system.ts'
import { openDatabase } from '../support/faults/database-assertions.ts'
import { orders, queueOrders } from '../support/faults/coordinators.ts'
import { isFaultRun } from '../support/faults/scale.ts'
import { stepQueuesOf } from '../support/faults/step-queues.ts'
import { startStepTarget } from '../support/fakes/step-target.ts'

const HEALTHY = 1_200
const COPIES_OF_EACH = 15
const RUNS = 9

const good = {
  v: 1,
  Process: 'OrderProcess',
  TransactionID: 'x',
  ReplayID: 0,
  Step: 'order',
  Version: 0,
}
/** Malformed messages. Except for the last three, they are dead-lettered with the reason `malformed`. */
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
    { Process: 'UnknownProcess' },
  ].map((fault) => JSON.stringify({ ...good, ...fault })),
]

describe.runIf(isFaultRun)('poison messages in queues with valid messages', () => {
  it('each poison message is dead-lettered with the reason of its rejection, while healthy orders complete', async ({
    annotate,
  }) => {
    await using target = await startStepTarget()
    await using system = await startSystem([])
    const coordinator = system.start('coordinator', { DEMO_API_URL: target.url })
    await system.ready('coordinator')
    await using database = await openDatabase(system)
    const queues = stepQueuesOf(system)
    const connection = await connect(backend('TEST_AMQP_URL'))
    const channel = await connection.createConfirmChannel()
    let queued = 0
    let deadLettered = 0
    const deadLetters = async (): Promise<number> => {
      const [row] = await database.sql<{ count: number }[]>`
        select count(*)::int as count from "Order_DeadLetter"`
      return row?.count ?? 0
    }
    const msWith = async (name: string, isPoisoned: boolean): Promise<number> => {
      const startedAt = performance.now()
      if (isPoisoned) {
        // Each copy has its own message id. Copies with the same id would be stored as a single dead letter.
        for (let n = 0; n < COPIES_OF_EACH; n += 1)
          for (const [kind, content] of poison.entries())
            channel.publish(
              system.amqpPrefix + STEPS_EXCHANGE,
              'OrderProcess.order',
              Buffer.from(content),
              { messageId: `${name}${kind}-${n}` },
            )
        deadLettered += COPIES_OF_EACH * poison.length
      }
      await queueOrders(system, coordinator.url, orders(HEALTHY, name))
      queued += HEALTHY
      await eventually(async () => expect((await database.countRuns()).completed).toBe(queued))
      const ms = performance.now() - startedAt
      await eventually(async () =>
        expect([await queues.ready(), await deadLetters()]).toEqual([{}, deadLettered]),
      )
      return ms
    }
    await msWith('warm', false)
    // Measurements with and without poison messages alternate, so that other processes on the machine affect both kinds
    // of measurement equally.
    const pairs: { healthy: number; poisoned: number; slower: number }[] = []
    for (let run = 0; run < RUNS; run += 1) {
      const isPoisonedFirst = run % 2 === 1
      const first = await msWith(`a${run}-`, isPoisonedFirst)
      const second = await msWith(`b${run}-`, !isPoisonedFirst)
      const [healthy, poisoned] = isPoisonedFirst ? [second, first] : [first, second]
      pairs.push({ healthy, poisoned, slower: poisoned / healthy - 1 })
    }
    const rows = await database.sql<{ reason: string; count: number }[]>`
      select "Reason" as reason, count(*)::int as count from "Order_DeadLetter" group by "Reason"`
    const copies = RUNS * COPIES_OF_EACH
    expect(Object.fromEntries(rows.map(({ reason, count }) => [reason, count]))).toEqual({
      malformed: (poison.length - 3) * copies,
      unknown_step: copies,
      wrong_queue: copies,
      unknown_process: copies,
    })
    await connection.close()
    const median = (of: 'healthy' | 'poisoned' | 'slower'): number =>
      pairs.map((pair) => pair[of]).toSorted((a, b) => a - b)[(RUNS - 1) / 2] ?? 0
    // The durations are only printed, because they depend on the machine.
    const slower = (median('slower') * 100).toFixed(0)
    await annotate(
      `${poison.length} kinds of poison, ${deadLettered} messages: all dead-lettered with their reason; ${HEALTHY} healthy orders took ${median('healthy').toFixed(0)} ms alone and ${median('poisoned').toFixed(0)} ms among ${COPIES_OF_EACH * poison.length} poison messages (medians of ${RUNS}; ${slower} % slower, median of the pairs)`,
      'measurement',
    )
  }, 300_000)
})
