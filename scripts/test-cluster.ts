// `npm run test:cluster -- [options] [<fault>…]`: runs all backends and services in Docker as a cluster of three
// machines, causes faults under load, and prints what was lost. Each machine is simulated by several containers. The
// exit code is 1 if a guarantee of docs/clusters.md did not hold during a fault.
//   --list             lists the faults
//   --all              causes every fault; the default is the named faults, or those that `--list` marks with `*`
//   --seed 7           repeats the random choices of a run; with `1-5`, causes every fault once for each of these seeds
//   --minutes 8        causes no further fault after eight minutes, and names the faults that were left out
//   --results <file>   appends every result to the file as a line of JSON
//   --keep-images      does not remove the images afterwards
import { randomInt } from 'node:crypto'
import { appendFileSync, writeFileSync } from 'node:fs'
import { loadavg } from 'node:os'
import { parseArgs } from 'node:util'
import { Cluster } from '../tests/cluster/cluster.ts'
import { faults } from '../tests/cluster/faults.ts'
import { buildFirstRelease, removeImages } from '../tests/cluster/images.ts'
import { parseSeeds, planClusters } from '../tests/cluster/plan.ts'
import { type PlannedRound, runFaults } from '../tests/cluster/run.ts'
import { summaryTable } from '../tests/cluster/summary.ts'
import { isKept, type Round, roundTable } from '../tests/cluster/verdict.ts'
import { expect } from '../tests/compose/check.ts'

const START_DEADLINE_MINUTES = 10
const MINUTES_PER_FAULT = 4
const LOG_LINES = 5_000

const { values, positionals, seeds, minutes } = readArguments()
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
// The first signal starts the removal of the containers. Further signals are ignored, so that they do not interrupt the
// removal.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
  process.on(signal, () => interrupted.abort(new Error(`stopped by ${signal}`)))
const clusters = planClusters(chosen, seeds)
const rounds: Round[] = []
const deadlineMs =
  (START_DEADLINE_MINUTES * (clusters.length + 1) +
    chosen.length * seeds.length * MINUTES_PER_FAULT) *
  60_000
const signal = AbortSignal.any([interrupted.signal, AbortSignal.timeout(deadlineMs)])
const cluster = await Cluster.create(signal)

if (!(await cluster.isEngineAvailable())) {
  console.error('No Docker engine with Compose responds: start one, or set DOCKER_HOST.')
  process.exit(1)
}
const startedAt = performance.now()
const isTimeOver = (): boolean => performance.now() - startedAt > minutes * 60_000
const secondsSince = (moment: number): string =>
  ((performance.now() - moment) / 1_000).toFixed(1).padStart(6)
console.log(`seed ${values.seed}`)
try {
  await step('the image is built', () => cluster.build())
  if (chosen.some(({ startsOn }) => startsOn === 'first release'))
    await step('the image of the first release is built', () => buildFirstRelease(signal))
  for (const [index, planned] of clusters.entries()) {
    if (isTimeOver()) break
    if (index > 0) await cluster.remove()
    await step('the cluster is ready', () => cluster.up(planned[0]?.fault.startsOn))
    await runFaults(cluster, planned, { signal, isTimeOver, onRound: report })
  }
} catch (error) {
  console.error(`\n${error instanceof Error ? error.message : String(error)}`)
  if (!interrupted.signal.aborted) console.error(await cluster.logs(5))
  process.exitCode = 1
}
const leftOut = clusters.flat().slice(rounds.length)
if (leftOut.length > 0)
  console.log(
    `\nNot run: ${leftOut.map(({ fault, seed }) => `${fault.name} (seed ${seed})`).join(', ')}`,
  )
if (rounds.length > 0) console.log(`\n${roundTable(rounds).join('\n')}`)
if (seeds.length > 1) console.log(`\n${summaryTable(rounds).join('\n')}`)
await cluster.remove()
if (!values['keep-images']) await removeImages()
if (!rounds.every(isKept)) process.exitCode = 1
// Requests of the load generator may still be in flight and would keep this process alive, so it exits explicitly.
process.exit()

async function report(round: Round, { seed }: PlannedRound): Promise<void> {
  rounds.push(round)
  const verdict = isKept(round) ? 'kept  ' : 'BROKEN'
  console.log(`${secondsSince(startedAt)} s  ${verdict} ${round.name}, seed ${seed}`)
  if (values.results === undefined) return
  if (!isKept(round)) {
    const file = `${values.results}.${round.name}.${seed}.log`
    writeFileSync(file, await cluster.logs(LOG_LINES))
    console.log(`          the logs of its containers are in ${file}`)
  }
  const conditions = { isKept: isKept(round), seed, at: new Date(), load: loadavg()[0] }
  appendFileSync(values.results, `${JSON.stringify({ ...round, ...conditions })}\n`)
}

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
        results: { type: 'string' },
        minutes: { type: 'string' },
        'keep-images': { type: 'boolean' },
      },
    })
    const names = faults.map(({ name }) => name)
    const unknown = parsed.positionals.find((name) => !names.includes(name))
    expect(unknown === undefined, `There is no fault '${unknown}'; there are: ${names.join(', ')}`)
    const parsedSeeds = parseSeeds(parsed.values.seed)
    expect(
      parsedSeeds !== null,
      '--seed must be a whole number, or a range of at most 100 such as 1-5',
    )
    const mostMinutes = Number(parsed.values.minutes ?? Infinity)
    expect(mostMinutes > 0, '--minutes must be a number above 0')
    return { ...parsed, seeds: parsedSeeds, minutes: mostMinutes }
  } catch (error) {
    console.error((error as Error).message)
    process.exit(1)
  }
}
