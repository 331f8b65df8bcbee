import { afterAll, describe, expect, it, vi } from 'vitest'
import { startSystem } from '../support/system.ts'
import { coordinatorWithFailpoints } from '../support/processes/failpoints.ts'
import {
  startRestartableServer,
  startRestartableRabbitMq,
} from '../support/backends/restartable-servers.ts'
import { runOrderLoad, type OrderLoadResult } from '../support/faults/order-load.ts'
import { isFaultRun, scale } from '../support/faults/scale.ts'

const intervals = { LOCAL_PULL_SECONDS: '1', REMOTE_PULL_SECONDS: '2' }

const summaryOf = (orders: number, result: OrderLoadResult): string =>
  `${orders} orders, ${result.kills} SIGKILLs (${result.killsDuringSteps} with steps in flight): lost 0, ` +
  `duplicate headers 0, duplicate items 0, incomplete files 0, queues empty; ${result.inDoubt} attempts lost ` +
  `their worker, ${result.repeatedCalls} calls repeated, all with their first idempotency key; all completed ` +
  `${result.recoverySeconds.toFixed(1)} s after the last fault`

describe('a coordinator that is killed under load', () => {
  it.for([
    ['dispatch by one message per step', 'order'],
    ['inline dispatch', 'inline'],
  ] as const)(
    'killing coordinators under load loses no order, records no step twice and leaves no incomplete file (%s)',
    { timeout: 120_000 },
    async ([name, process], { annotate }) => {
      await using system = await startSystem([])
      const result = await runOrderLoad(system, {
        orders: 320,
        kills: 8,
        killEveryMs: 1_000,
        entry: coordinatorWithFailpoints,
        // Only a few orders run at a time, so that some are still unfinished at the last kill.
        env: { ...intervals, PROCESS: process, PREFETCH: '4', LEASE_MS: '3000' },
      })
      expect(result.killsDuringSteps).toBeGreaterThan(0)
      await annotate(`${name}: ${summaryOf(320, result)}`, 'measurement')
    },
  )
})

/**
 * The test kills coordinators repeatedly, and RabbitMQ and PostgreSQL at least twice each. Leases have their default
 * length.
 */
describe.runIf(isFaultRun)('a system whose coordinators, broker and database are killed', () => {
  afterAll(() => void vi.unstubAllEnvs())

  it(
    'no order is lost and no result is duplicated although coordinators, RabbitMQ and PostgreSQL are killed',
    async ({ annotate }) => {
      await using postgres = await startRestartableServer('postgres')
      await using rabbitmq = await startRestartableRabbitMq()
      vi.stubEnv('TEST_DATABASE_URL', postgres.url)
      vi.stubEnv('TEST_AMQP_URL', rabbitmq.url)
      await using system = await startSystem([])
      const orders = scale({ test: 0, faults: 2_000, long: 10_000 })
      const outage = (server: typeof postgres) => async () => {
        await server.kill()
        await server.restart()
      }
      const twice = [outage(rabbitmq), outage(postgres), outage(rabbitmq), outage(postgres)]
      const result = await runOrderLoad(system, {
        orders,
        kills: 10,
        killEveryMs: 1_500,
        // Only a few orders run at a time, so that some are still unfinished at the last outage.
        env: { ...intervals, PREFETCH: '4' },
        outages: scale({ test: [], faults: twice, long: [...twice, ...twice, ...twice] }),
      })
      expect(result.killsDuringSteps).toBeGreaterThan(0)
      await annotate(
        `${summaryOf(orders, result)}; RabbitMQ and PostgreSQL killed and restarted ${scale({ test: 0, faults: 2, long: 6 })} times each`,
        'measurement',
      )
    },
    scale({ test: 0, faults: 300_000, long: 900_000 }),
  )
})
