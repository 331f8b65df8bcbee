import { availableParallelism } from 'node:os'
import { setTimeout as delay } from 'node:timers/promises'
import setupBackends from '@integration-host/tests/backends'
import { startFakeInstallation } from '@integration-host/tests/fake-installation'
import { startSystem } from '@integration-host/tests/system'
import { startStub } from '../order-process/stub.ts'
import { cpuSeconds } from '../support/process-usage.ts'
import { runOrders } from '../support/run-orders.ts'
import { median, quantile } from '../support/statistics.ts'
import { startConsoleProcess } from './console-process.ts'

interface Measured {
  readonly perSecond: number
  /** Processor time of the coordinator for each order, in milliseconds. */
  readonly cpuMs: number
  /** The part of the processor time of all cores that the console takes; 0 without a console. */
  readonly consoleShare: number
}

/**
 * The pause before each measurement. During this pause, a newly started console reads the state of every service one
 * time.
 */
const PAUSE_MS = 3_000

/**
 * Measures OrderProcess on a coordinator with PostgreSQL and RabbitMQ, alternately without and with a console that
 * watches the coordinator. Reports the median and the quartiles of the ratios of the two results. The speed of a shared
 * machine changes by a tenth within seconds, so many short measurements say more than a few long ones. While all cores
 * are busy, a console that takes a hundredth of their time costs about a hundredth of the throughput. This share is
 * reported too, because it varies less than the ratios.
 */
export async function measureWatching(
  rounds: number,
  orders: number,
  report: (name: string, measured: string, limit: string) => void,
): Promise<void> {
  await using opened = new AsyncDisposableStack()
  process.env['TEST_BACKENDS'] ??= 'local'
  opened.defer(await setupBackends())
  const stub = opened.use(await startStub())
  const system = opened.use(await startSystem([]))
  const fake = opened.use(await startFakeInstallation())
  const coordinator = system.start('coordinator', { DEMO_API_URL: stub.url, LOG_LEVEL: 'warn' })
  await system.ready('coordinator')

  async function run(consolePid: number | null = null): Promise<Measured> {
    const consoleSeconds = (): number => (consolePid === null ? 0 : cpuSeconds(consolePid))
    await delay(PAUSE_MS)
    // Without these orders, the compilation of the hot functions of a newly started console would be measured too.
    await runOrders(system, coordinator.url, orders)
    const [cpuBefore, consoleBefore] = [cpuSeconds(coordinator.pid), consoleSeconds()]
    const seconds = await runOrders(system, coordinator.url, orders)
    return {
      perSecond: orders / seconds,
      cpuMs: ((cpuSeconds(coordinator.pid) - cpuBefore) / orders) * 1_000,
      consoleShare: (consoleSeconds() - consoleBefore) / (seconds * availableParallelism()),
    }
  }
  async function runWatched(): Promise<Measured> {
    await using watching = await startConsoleProcess({
      coordinator: coordinator.url,
      others: fake.url,
      key: system.serviceKey,
    })
    return await run(watching.pid)
  }

  await run() // a warm-up round, in which V8 compiles the hot functions
  const pairs: { readonly alone: Measured; readonly watched: Measured }[] = []
  for (let round = 0; round < rounds; round += 1) {
    // The tables grow with each measurement, so the second measurement of a round is slower than the first. Therefore
    // the order of the two measurements alternates from round to round.
    const first = round % 2 === 0
    const one = first ? await run() : await runWatched()
    const other = first ? await runWatched() : await run()
    pairs.push(first ? { alone: one, watched: other } : { alone: other, watched: one })
  }
  const ratio = (of: (measured: Measured) => number): string => {
    const ratios = pairs.map(({ alone, watched }) => of(watched) / of(alone))
    const [low, high] = [quantile(ratios, 0.25), quantile(ratios, 0.75)]
    return `${median(ratios).toFixed(3)}, quartiles ${low.toFixed(2)} and ${high.toFixed(2)}`
  }
  const middle = (of: (pair: (typeof pairs)[number]) => number): number => median(pairs.map(of))
  const name = 'with a console that watches the coordinator'
  report(
    `${name}: orders a second`,
    `${middle(({ watched }) => watched.perSecond).toFixed(0)}, without ${middle(({ alone }) => alone.perSecond).toFixed(0)} (ratio ${ratio(({ perSecond }) => perSecond)})`,
    'ratio 0.98',
  )
  report(
    `${name}: CPU of the coordinator for an order`,
    `${middle(({ watched }) => watched.cpuMs).toFixed(2)} ms, without ${middle(({ alone }) => alone.cpuMs).toFixed(2)} ms (ratio ${ratio(({ cpuMs }) => cpuMs)})`,
    'none',
  )
  report(
    'the console that watches: share of the processor time of all cores',
    `${(middle(({ watched }) => watched.consoleShare) * 100).toFixed(1)} %`,
    'none',
  )
}
