import { eventually } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { startSystem } from '../support/system.ts'
import { openDatabase } from '../support/faults/database-assertions.ts'
import { orders, queueOrders, startAnotherCoordinator } from '../support/faults/coordinators.ts'
import { listeningUrl } from '@integration-host/shared/test-support/start-process'
import { scale } from '../support/faults/scale.ts'
import { stepQueuesOf } from '../support/faults/step-queues.ts'
import { startStepTarget } from '../support/fakes/step-target.ts'

const ORDERS = scale({ test: 200, faults: 2_000 })
const ROUNDS = scale({ test: 1, faults: 3 })
const REPLICAS = 3

describe('a rolling restart of three coordinators under load', () => {
  it(
    'a rolling restart of three coordinators repeats no step, and each replica shuts down within ten seconds',
    { timeout: 180_000 },
    async ({ annotate }) => {
      await using target = await startStepTarget()
      target.latencyMs = 150
      await using system = await startSystem([])
      const env = { DEMO_API_URL: target.url, PREFETCH: '4' }
      let replicas = Array.from({ length: REPLICAS }, () => startAnotherCoordinator(system, env))
      const urls = await Promise.all(replicas.map(listeningUrl))
      await using database = await openDatabase(system)
      const queues = stepQueuesOf(system)
      await eventually(async () => expect(await queues.consumers()).toBe(REPLICAS))
      const wanted = orders(ORDERS, 'r')
      await queueOrders(system, urls[0] ?? '', wanted)

      let slowestMs = 0
      let restartsUnderLoad = 0
      for (let turn = 0; turn < ROUNDS * REPLICAS; turn += 1) {
        const [oldest, ...others] = replicas
        const next = startAnotherCoordinator(system, env)
        replicas = [...others, next]
        await listeningUrl(next)
        if ((await database.countRuns()).completed < ORDERS) restartsUnderLoad += 1
        const stoppedAt = performance.now()
        expect(await oldest?.stop('SIGTERM')).toBe(0)
        slowestMs = Math.max(slowestMs, performance.now() - stoppedAt)
      }
      expect(restartsUnderLoad).toBeGreaterThan(0)
      target.latencyMs = 0
      await eventually(
        async () => expect(await database.countRuns()).toEqual({ runs: ORDERS, completed: ORDERS }),
        { seconds: 60 },
      )
      await eventually(async () => expect(await queues.ready()).toEqual({}))
      const ids = wanted.map(({ TransactionID }) => TransactionID)
      expect(await database.expectConsistent(ids, target)).toEqual({ inDoubt: 0, repeatedCalls: 0 })
      expect(slowestMs).toBeLessThan(10_000)
      await annotate(
        `rolling restart of ${REPLICAS} replicas, ${ROUNDS * REPLICAS} SIGTERMs (${restartsUnderLoad} under load), ${ORDERS} orders: 0 steps repeated, 0 attempts lost; the slowest shut down in ${(slowestMs / 1_000).toFixed(1)} s`,
        'measurement',
      )
    },
  )
})
