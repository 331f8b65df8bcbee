import { setTimeout as delay } from 'node:timers/promises'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { startSystem } from '../support/system.ts'
import { openBooks } from './support/books.ts'
import { addressOf, startBeside } from './support/coordinators.ts'
import { countStepMessages } from './support/message-counter.ts'
import { isFaultRun, scale } from './support/scale.ts'
import { startTarget } from './support/target.ts'

const ROWS = scale({ test: 0, faults: 2_000, long: 10_000 })
const KILLS = 20
const KILL_AFTER_MS = 700
const STEPS = 3

describe.runIf(isFaultRun)('the pulls, with stuck rows and a worker that keeps dying', () => {
  it('send no storm of messages', { timeout: 600_000 }, async ({ annotate }) => {
    await using target = await startTarget()
    await using system = await startSystem([])
    const env = { DEMO_API_URL: target.url, LOCAL_PULL_SECONDS: '2', REMOTE_PULL_SECONDS: '4' }
    // Makes the tables and the exchanges, and leaves.
    const first = system.start('coordinator', env)
    await system.ready('coordinator')
    await using books = await openBooks(system)
    await using messages = await countStepMessages(system)
    await first.stop('SIGTERM')
    await books.sql`
      insert into "Order_Header" ("Process", "TransactionID", "InitialData")
      select 'OrderProcess', 'p' || n, to_jsonb('p' || n) from generate_series(1, ${ROWS}::int) n`

    for (let kill = 0; kill < KILLS; kill += 1) {
      const worker = startBeside(system, env)
      await addressOf(worker)
      await delay(KILL_AFTER_MS)
      await worker.stop('SIGKILL')
    }
    const completedByDying = (await books.count()).completed
    const last = startBeside(system, env)
    await addressOf(last)
    await eventually(
      async () => expect(await books.count()).toEqual({ headers: ROWS, completed: ROWS }),
      { seconds: 240 },
    )
    await eventually(async () => expect(await books.waiting()).toEqual({}), { seconds: 60 })
    const ids = Array.from({ length: ROWS }, (_, n) => `p${n + 1}`)
    const { repeatedCalls } = await books.balance(ids, target)
    const perTransaction = messages.published / ROWS
    expect(perTransaction).toBeLessThan(2 * STEPS)
    await annotate(
      `${ROWS} stuck rows, the worker killed ${KILLS} times ${KILL_AFTER_MS / 1_000} s after its start (${completedByDying} rows done by then): ${perTransaction.toFixed(2)} messages per transaction of ${STEPS} steps, ${messages.mostForOne} at most; ${repeatedCalls} calls repeated, all under their first key`,
      'figure',
    )
  })
})
