// `npm run test:cluster`: runs all backends and services in Docker as a cluster of three machines, each simulated by
// several containers, causes faults under load, and prints what was lost. `-- --list` lists the faults, `-- <name>…` runs
// only the named faults, `-- --all` runs all, and `-- --seed 7` repeats the random choices of a run. The exit code is 1
// if a fault broke a promise of docs/clusters.md.
import { randomInt } from 'node:crypto'
import { parseArgs } from 'node:util'
import { isKept, type Round, roundTable } from '../packages/cli/src/chaos/verdict.ts'
import { Cluster } from '../tests/cluster/cluster.ts'
import { faults } from '../tests/cluster/faults.ts'
import { runFaults } from '../tests/cluster/run.ts'
import { expect } from '../tests/compose/check.ts'

const START_DEADLINE_MINUTES = 10
const MINUTES_PER_FAULT = 4

const { values, positionals } = readArguments()
const seed = Number(values.seed)
if (values.list) {
  const width = Math.max(...faults.map(({ name }) => name.length))
  for (const { name, does, isDefault } of faults)
    console.log(`${isDefault ? '*' : ' '} ${name.padEnd(width)}  ${does}`)
  console.log('\n* runs by default')
  process.exit(0)
}
const chosen = faults.filter(({ name, isDefault }) =>
  positionals.length > 0 ? positionals.includes(name) : (values.all ?? isDefault),
)

const interrupted = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.once(signal, () => interrupted.abort(new Error(`stopped by ${signal}`)))
const deadlineMs = (START_DEADLINE_MINUTES + chosen.length * MINUTES_PER_FAULT) * 60_000
const signal = AbortSignal.any([interrupted.signal, AbortSignal.timeout(deadlineMs)])
const cluster = await Cluster.create(signal)
const rounds: Round[] = []

if (!(await cluster.isEngineAvailable())) {
  console.error('No Docker engine with Compose responds: start one, or set DOCKER_HOST.')
  process.exit(1)
}
const startedAt = performance.now()
const secondsSince = (moment: number): string =>
  ((performance.now() - moment) / 1_000).toFixed(1).padStart(6)
console.log(`seed ${seed}`)
try {
  await step('the image is built', () => cluster.build())
  await step('the cluster is ready', () => cluster.up())
  await runFaults(cluster, chosen, {
    seed,
    signal,
    onRound(round) {
      rounds.push(round)
      console.log(
        `${secondsSince(startedAt)} s  ${isKept(round) ? 'kept  ' : 'BROKEN'} ${round.name}`,
      )
    },
  })
} catch (error) {
  console.error(`\n${error instanceof Error ? error.message : String(error)}`)
  if (!interrupted.signal.aborted) console.error(await cluster.logs())
  process.exitCode = 1
} finally {
  if (rounds.length > 0) console.log(`\n${roundTable(rounds).join('\n')}`)
  await cluster.remove()
}
if (!rounds.every(isKept)) process.exitCode = 1
// Requests of the load generator may still be waiting for a response and would keep this process alive.
process.exit()

async function step(title: string, run: () => Promise<void>): Promise<void> {
  await run()
  console.log(`${secondsSince(startedAt)} s  ${title}`)
}

function readArguments() {
  try {
    const parsed = parseArgs({
      allowPositionals: true,
      options: {
        seed: { type: 'string', default: String(randomInt(1, 1_000_000_000)) },
        list: { type: 'boolean' },
        all: { type: 'boolean' },
      },
    })
    const names = faults.map(({ name }) => name)
    const unknown = parsed.positionals.find((name) => !names.includes(name))
    expect(unknown === undefined, `There is no fault '${unknown}'; there are: ${names.join(', ')}`)
    expect(/^\d{1,9}$/.test(parsed.values.seed), '--seed must be a whole number')
    return parsed
  } catch (error) {
    console.error((error as Error).message)
    process.exit(1)
  }
}
