import { eventually } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { startSystem } from '../support/system.ts'
import { openDatabase } from '../support/faults/database-assertions.ts'
import { orders, queueOrders, startAnotherCoordinator } from '../support/faults/coordinators.ts'
import { listeningUrl } from '@integration-host/shared/test-support/start-process'
import { scale } from '../support/faults/scale.ts'
import { stepQueuesOf } from '../support/faults/step-queues.ts'
import { startStepTarget } from '../support/fakes/step-target.ts'

const REPLICAS = 3
const RESTARTS = scale({ test: 1, faults: 3 }) * REPLICAS
/** The orders that are queued before each restart. Their calls take longer than the restart needs to begin. */
const ORDERS_PER_RESTART = scale({ test: 70, faults: 220 })

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
      await Promise.all(replicas.map(listeningUrl))
      await using database = await openDatabase(system)
      const queues = stepQueuesOf(system)
      await eventually(async () => expect(await queues.consumers()).toBe(REPLICAS))
      const wanted = orders(RESTARTS * ORDERS_PER_RESTART, 'r')

      let slowestMs = 0
      let restartsUnderLoad = 0
      for (let turn = 0; turn < RESTARTS; turn += 1) {
        const [oldest, ...others] = replicas
        const next = startAnotherCoordinator(system, env)
        replicas = [...others, next]
        const url = await listeningUrl(next)
        await eventually(async () => expect(await queues.consumers()).toBe(REPLICAS + 1))
        const first = turn * ORDERS_PER_RESTART
        await queueOrders(system, url, wanted.slice(first, first + ORDERS_PER_RESTART))
        const { runs, completed } = await database.countRuns()
        if (completed < runs) restartsUnderLoad += 1
        const stoppedAt = performance.now()
        expect(await oldest?.stop('SIGTERM')).toBe(0)
        slowestMs = Math.max(slowestMs, performance.now() - stoppedAt)
      }
      expect(restartsUnderLoad).toBeGreaterThan(0)
      target.latencyMs = 0
      await eventually(
        async () =>
          expect(await database.countRuns()).toEqual({
            runs: wanted.length,
            completed: wanted.length,
          }),
        { seconds: 60 },
      )
      await eventually(async () => expect(await queues.ready()).toEqual({}))
      const ids = wanted.map(({ TransactionID }) => TransactionID)
      expect(await database.expectConsistent(ids, target)).toEqual({ inDoubt: 0, repeatedCalls: 0 })
      expect(slowestMs).toBeLessThan(10_000)
      await annotate(
        `rolling restart of ${REPLICAS} replicas, ${RESTARTS} SIGTERMs (${restartsUnderLoad} under load), ${wanted.length} orders: 0 steps repeated, 0 attempts lost; the slowest shut down in ${(slowestMs / 1_000).toFixed(1)} s`,
        'measurement',
      )
    },
  )
})
