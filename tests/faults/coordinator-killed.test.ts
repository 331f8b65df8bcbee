import { afterAll, describe, expect, it, vi } from 'vitest'
import { startSystem } from '../support/system.ts'
import { dyingMain } from './support/coordinators.ts'
import { startMortalPostgres, startMortalRabbitMq } from './support/mortal-servers.ts'
import { orderStorm, type StormFigures } from './support/order-storm.ts'
import { isFaultRun, scale } from './support/scale.ts'

const pulls = { LOCAL_PULL_SECONDS: '1', REMOTE_PULL_SECONDS: '2' }

const told = (orders: number, figures: StormFigures): string =>
  `${orders} orders, ${figures.kills} SIGKILLs (${figures.killsAtWork} with steps in hand): lost 0, ` +
  `duplicate headers 0, duplicate items 0, torn files 0, queues empty; ${figures.inDoubt} attempts lost ` +
  `their worker, ${figures.repeatedCalls} calls repeated, all under their first key; all complete ` +
  `${figures.recoverySeconds.toFixed(1)} s after the last fault`

describe('a coordinator that is killed under load', () => {
  it.for([
    ['a message per step', 'order'],
    ['dispatch inline', 'inline'],
  ] as const)(
    'loses no order, records no step twice, and leaves no torn file: %s',
    { timeout: 120_000 },
    async ([name, process], { annotate }) => {
      await using system = await startSystem([])
      const figures = await orderStorm(system, {
        orders: 320,
        kills: 8,
        killEveryMs: 1_000,
        entry: dyingMain,
        // Few at a time: the work must last until the last kill.
        env: { ...pulls, PROCESS: process, PREFETCH: '4', LEASE_MS: '3000' },
      })
      expect(figures.killsAtWork).toBeGreaterThan(0)
      await annotate(`${name}: ${told(320, figures)}`, 'figure')
    },
  )
})

/** Everything dies: coordinators all the time, RabbitMQ and Postgres twice each. The lease is the real one. */
describe.runIf(isFaultRun)('a system in which every process is killed', () => {
  afterAll(() => void vi.unstubAllEnvs())

  it(
    'loses no order and repeats no result, and has recovered within a minute',
    async ({ annotate }) => {
      await using postgres = await startMortalPostgres()
      await using rabbitmq = await startMortalRabbitMq()
      vi.stubEnv('TEST_DATABASE_URL', postgres.url)
      vi.stubEnv('TEST_AMQP_URL', rabbitmq.url)
      await using system = await startSystem([])
      const orders = scale({ test: 0, faults: 2_000, long: 10_000 })
      const outage = (server: typeof postgres) => async () => {
        await server.kill()
        await server.revive()
      }
      const twice = [outage(rabbitmq), outage(postgres), outage(rabbitmq), outage(postgres)]
      const figures = await orderStorm(system, {
        orders,
        kills: 10,
        killEveryMs: 1_500,
        // Few at a time: the work must last until the last outage.
        env: { ...pulls, PREFETCH: '4' },
        outages: scale({ test: [], faults: twice, long: [...twice, ...twice, ...twice] }),
      })
      expect(figures.killsAtWork).toBeGreaterThan(0)
      await annotate(
        `${told(orders, figures)}; real servers: RabbitMQ and Postgres killed and started again ${scale({ test: 0, faults: 2, long: 6 })} times each`,
        'figure',
      )
    },
    scale({ test: 0, faults: 300_000, long: 900_000 }),
  )
})
