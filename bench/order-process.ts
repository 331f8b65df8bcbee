/**
 * Compares the demo's OrderProcess on this coordinator with the same process on other workflow engines. The process
 * makes two HTTP calls and writes one CSV file, and each step is stored durably before the next step starts. Measures
 * the rate, the processor time, and the latency at a slow pace. Prints tables.
 *
 *   npm run bench -- order-process [--rounds 5] [--only coordinator,BullMQ] [--one-by-one] [--disk]
 *   npm run bench -- order-process --against <checkout>      the coordinator of this checkout and of another checkout
 *   npm run bench -- order-process --payload-keys            the coordinator without and with PAYLOAD_KEYS
 *   npm run bench -- order-process --finished 0,1000000      with this many finished transactions in the tables
 *   npm run bench -- order-process --standby                 without and with a synchronous standby of PostgreSQL
 *   npm run bench -- order-process --replicas 1,2,3          with this many coordinators
 *   npm run bench -- order-process --behind-http             peers also with a client in another process, like ours
 *
 * `--concurrency 16,64,128,192` measures each entry with each of these concurrencies and prints rates only; the
 * settings in `entries.ts` were chosen from such a run. `--profile <folder>` keeps CPU profiles of the
 * coordinator's Node process. `--scale 0.1` runs a tenth of the transactions. Uses the PostgreSQL and RabbitMQ on
 * this machine's standard ports; no other process may use these servers during the benchmark. Redis and Restate are
 * started by the benchmark.
 */
import { parseArgs } from 'node:util'
import setupBackends from '@integration-host/tests/backends'
import type { System } from '@integration-host/tests/system'
import { otherCheckout } from './support/checkout.ts'
import type { EngineName } from './order-process/engine.ts'
import { type Entry, entries } from './order-process/entries.ts'
import { type FilledSystem, startFilledSystem } from './order-process/finished.ts'
import { measure, type Load, type Measured } from './order-process/measure.ts'
import type { StageOptions } from './order-process/stage.ts'
import { type ReplicatedSystem, startReplicatedSystem } from './order-process/standby.ts'
import { startStub } from './order-process/stub.ts'
import {
  printAgainst,
  printLatencies,
  printRates,
  printRatios,
  printSystems,
} from './order-process/tables.ts'

const PACE = 20
const PACED_SECONDS = 6
/**
 * The engines that run in the process of their client, and that are fast enough to be compared behind HTTP too. Entries
 * with a variant are excluded, because behind HTTP `variant` holds the name of the engine.
 */
const RUNS_IN_CLIENT = new Set<EngineName>(['commits', 'dbos', 'messages', 'pg-boss', 'same-rows'])

const { values: args } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    only: { type: 'string', default: '' },
    scale: { type: 'string', default: '1' },
    concurrency: { type: 'string', default: '' },
    'one-by-one': { type: 'boolean', default: false },
    disk: { type: 'boolean', default: false },
    finished: { type: 'string', default: '' },
    standby: { type: 'boolean', default: false },
    replicas: { type: 'string', default: '' },
    'behind-http': { type: 'boolean', default: false },
    'payload-keys': { type: 'boolean', default: false },
    profile: { type: 'string' },
    against: { type: 'string' },
  },
})
const rounds = Number(args.rounds)
const sweep = args.concurrency.split(',').filter(Boolean).map(Number)
/** Whether the options request a comparison of variants of the coordinator. If they do, no other engine is measured. */
const isOfCoordinator =
  args.finished !== '' ||
  args.standby ||
  args['payload-keys'] ||
  args.replicas !== '' ||
  args.against !== undefined
const chosen = entries
  .filter(({ name, isOurs }) => {
    const isNamed = args.only.split(',').some((part) => name.includes(part))
    return isNamed && (isOurs || !isOfCoordinator)
  })
  .flatMap((entry) =>
    args['behind-http'] && RUNS_IN_CLIENT.has(entry.engine) && entry.variant === undefined
      ? [
          entry,
          {
            ...entry,
            engine: 'behind-http' as const,
            variant: entry.engine,
            name: `${entry.name}, behind HTTP`,
          },
        ]
      : [entry],
  )
  .flatMap((entry) => {
    if (args.against === undefined) return [entry]
    if (entry.byEvents === true) return []
    // The other checkout may be older than `Prefer: wait`, so both coordinators are measured by events.
    const byEvents = { ...entry, byEvents: true }
    const checkout = otherCheckout(args.against)
    return [byEvents, { ...byEvents, name: `${entry.name} (other)`, checkout }]
  })
  .flatMap((entry) =>
    args['payload-keys']
      ? [entry, { ...entry, name: `${entry.name} (payload keys)`, hasPayloadKeys: true }]
      : [entry],
  )
  .flatMap((entry) =>
    args.replicas === ''
      ? [entry]
      : args.replicas.split(',').map((replicas) => ({
          ...entry,
          replicas: Number(replicas),
          name: `${entry.name} (${replicas})`,
        })),
  )
  .flatMap((entry) =>
    sweep.length === 0
      ? [entry]
      : sweep.map((concurrency) => ({
          ...entry,
          concurrency,
          name: `${entry.name} (${concurrency})`,
        })),
  )

const leaving = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => leaving.abort())
await using opened = new AsyncDisposableStack()
// The benchmark accepts only servers on this machine, because it cannot read the processor time of a server in a
// container. It also needs a PostgreSQL server with fsync. The servers that the test setup starts run without fsync.
process.env['TEST_BACKENDS'] ??= 'local'
opened.defer(await setupBackends())
const stub = opened.use(await startStub())
console.log(
  `HTTP stub that the steps call: ${stub.program}. CSV files ${args.disk ? 'on disk' : 'in memory'}.`,
)

const optionsOf = (entry: Entry): StageOptions & { stub: number } => ({
  stub: stub.pid,
  stubUrl: stub.url,
  concurrency: entry.concurrency,
  onDisk: args.disk,
  leaving: leaving.signal,
  ...(args.profile !== undefined && { profileTo: args.profile }),
})
const load = (pacedSeconds: number): Load => ({
  kind: args['one-by-one'] ? 'one-by-one' : 'all',
  scale: Number(args.scale),
  perSecond: PACE,
  pacedSeconds,
})
await (args.finished !== ''
  ? measureFinished()
  : args.standby
    ? measureStandby()
    : measureEntries())

/** Each round runs all entries one after the other, because the speed of the machine drifts between rounds. */
async function measureEntries(): Promise<void> {
  const isSweep = sweep.length > 0
  const measured = new Map<Entry, (Measured | null)[]>(chosen.map((entry) => [entry, []]))
  for (let round = 0; round < rounds; round += 1)
    for (const [entry, results] of measured)
      results.push(
        await attempt(entry.name, () =>
          measure(entry, load(isSweep ? 0 : PACED_SECONDS), optionsOf(entry)),
        ),
      )
  console.log(args['one-by-one'] ? '\nTransactions one by one' : '\nAll transactions at once')
  printRates(measured)
  if (isSweep) return
  printRatios(measured)
  printAgainst(measured)
  printLatencies(measured, PACE)
}

async function measureFinished(): Promise<void> {
  const systems: FilledSystem[] = []
  for (const finished of args.finished.split(',').map(Number))
    systems.push(opened.use(await startFilledSystem(finished)))
  await measureSystems(systems, ({ finished }) => `${finished} finished`)
}

async function measureStandby(): Promise<void> {
  const systems: ReplicatedSystem[] = []
  for (const hasStandby of [false, true])
    systems.push(opened.use(await startReplicatedSystem(hasStandby)))
  await measureSystems(systems, ({ hasStandby }) =>
    hasStandby ? 'synchronous standby' : 'no standby',
  )
}

async function measureSystems<Prepared extends { readonly system: System }>(
  systems: readonly Prepared[],
  nameOf: (prepared: Prepared) => string,
): Promise<void> {
  for (const entry of chosen) {
    const measured = new Map<Prepared, (Measured | null)[]>(systems.map((each) => [each, []]))
    for (let round = 0; round < rounds; round += 1)
      for (const [prepared, results] of measured)
        results.push(
          await attempt(`${entry.name}, ${nameOf(prepared)}`, () =>
            measure(entry, load(0), { ...optionsOf(entry), system: prepared.system }),
          ),
        )
    printSystems(entry, measured, nameOf)
  }
}

/**
 * Measures an entry. Resolves with `null` if the round failed or was interrupted by a signal. If a round fails, its
 * error is reported and its results are left out; the results of the other rounds remain valid.
 */
async function attempt(name: string, work: () => Promise<Measured>): Promise<Measured | null> {
  if (leaving.signal.aborted) return null
  try {
    const result = await work()
    console.log(`${name}: ${result.perSecond.toFixed(0)}/s`)
    return result
  } catch (error) {
    if (!leaving.signal.aborted) console.error(`${name}:`, error)
    return null
  }
}
