import { setTimeout as delay } from 'node:timers/promises'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { startSystem } from '../support/system.ts'
import { openDatabase } from '../support/faults/database-assertions.ts'
import { startAnotherCoordinator } from '../support/faults/coordinators.ts'
import { listeningUrl } from '@integration-host/shared/test-support/start-process'
import { countStepMessages } from '../support/faults/message-counter.ts'
import { isFaultRun, scale } from '../support/faults/scale.ts'
import { stepQueuesOf } from '../support/faults/step-queues.ts'
import { startStepTarget } from '../support/fakes/step-target.ts'

const ROWS = scale({ test: 0, faults: 2_000, long: 10_000 })
const KILLS = 20
const KILL_AFTER_MS = 700
const STEPS = 3

describe.runIf(isFaultRun)('the sweeper while rows are stuck and workers are killed', () => {
  it(
    'the coordinators publish fewer than two messages per step on average while rows are stuck and workers are killed',
    { timeout: 600_000 },
    async ({ annotate }) => {
      await using target = await startStepTarget()
      await using system = await startSystem([])
      const env = { DEMO_API_URL: target.url, LOCAL_PULL_SECONDS: '2', REMOTE_PULL_SECONDS: '4' }
      // The first coordinator only creates the tables and the exchanges. Then it is shut down.
      const first = system.start('coordinator', env)
      await system.ready('coordinator')
      await using database = await openDatabase(system)
      const queues = stepQueuesOf(system)
      await using messages = await countStepMessages(system)
      await first.stop('SIGTERM')
      await database.sql`
      insert into "Order_Header" ("Process", "TransactionID", "InitialData")
      select 'OrderProcess', 'p' || n, to_jsonb('p' || n) from generate_series(1, ${ROWS}::int) n`

      for (let kill = 0; kill < KILLS; kill += 1) {
        const worker = startAnotherCoordinator(system, env)
        await listeningUrl(worker)
        await delay(KILL_AFTER_MS)
        await worker.stop('SIGKILL')
      }
      const completedByKilled = (await database.countRuns()).completed
      const last = startAnotherCoordinator(system, env)
      await listeningUrl(last)
      await eventually(
        async () => expect(await database.countRuns()).toEqual({ runs: ROWS, completed: ROWS }),
        { seconds: 240 },
      )
      await eventually(async () => expect(await queues.ready()).toEqual({}), { seconds: 60 })
      const ids = Array.from({ length: ROWS }, (_, n) => `p${n + 1}`)
      const { repeatedCalls } = await database.expectConsistent(ids, target)
      const perTransaction = messages.published / ROWS
      expect(perTransaction).toBeLessThan(2 * STEPS)
      await annotate(
        `${ROWS} stuck rows, the worker killed ${KILLS} times ${KILL_AFTER_MS / 1_000} s after its start (${completedByKilled} rows completed by then): ${perTransaction.toFixed(2)} messages per transaction of ${STEPS} steps, ${messages.maxPerTransaction} at most; ${repeatedCalls} calls repeated, all with their first idempotency key`,
        'measurement',
      )
    },
  )
})
