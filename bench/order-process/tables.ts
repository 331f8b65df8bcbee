import { median, medianInterval, quantile } from '../support/statistics.ts'
import type { Entry } from './entries.ts'
import type { Measured } from './measure.ts'

/** The results of each entry, one per round; `null` if the round failed. */
type Rounds<Key> = ReadonlyMap<Key, readonly (Measured | null)[]>

type Row = Record<string, string | number>

const good = (results: readonly (Measured | null)[]): readonly Measured[] =>
  results.filter((result) => result !== null)

const cpuMs = ({ cpu }: Measured): number => cpu.nodeMs + cpu.serversMs

function rateRow(results: readonly Measured[]): Row {
  const middle = (of: (result: Measured) => number): number => median(results.map(of))
  const queued = results.flatMap(({ queuedPerSecond }) => queuedPerSecond ?? [])
  return {
    rounds: results.length,
    'per second': middle((result) => result.perSecond).toFixed(0),
    best: Math.max(...results.map((result) => result.perSecond)).toFixed(0),
    'CPU ms each': middle(cpuMs).toFixed(2),
    node: middle((result) => result.cpu.nodeMs).toFixed(2),
    servers: middle((result) => result.cpu.serversMs).toFixed(2),
    stub: middle((result) => result.cpu.stubMs).toFixed(2),
    'queued per second': queued.length > 0 ? median(queued).toFixed(0) : '-',
    'other cores': middle((result) => result.otherCores).toFixed(2),
  }
}

/** Prints the results of the runs at full speed, as medians over the rounds. */
export function printRates(measured: Rounds<Entry>): void {
  printTable(measured, ({ name }) => name, rateRow)
}

/**
 * Prints a comparison of the coordinator with each other engine. Each ratio compares two results of the same round; the
 * medians of these ratios are printed.
 */
export function printRatios(measured: Rounds<Entry>): void {
  const ours = [...measured].filter(([entry]) => entry.isOurs)
  const rows: [string, Row][] = []
  for (const [entry, theirs] of measured) {
    if (entry.isOurs) continue
    const row: Row = {}
    for (const [{ name }, results] of ours) {
      const { rate, cpu } = ratios(results, theirs)
      const short = name.replace('coordinator, ', '')
      row[`${short}: rate`] = rate
      row[`${short}: CPU`] = cpu
    }
    rows.push([entry.name, row])
  }
  if (ours.length === 0 || rows.length === 0) return
  console.log(
    '\nRatios, this coordinator / other engine (rate: more is better; CPU: less is better)',
  )
  console.table(Object.fromEntries(rows))
}

/**
 * Prints a comparison of the coordinator of this checkout with the coordinator of another checkout. Each ratio compares
 * two results of the same round; the medians of these ratios are printed.
 */
export function printAgainst(measured: Rounds<Entry>): void {
  const rows: [string, Row][] = []
  for (const [entry, results] of measured) {
    if (entry.checkout !== undefined) continue
    for (const [{ checkout, variant }, theirs] of measured)
      if (checkout !== undefined && variant === entry.variant)
        rows.push([entry.name, ratios(results, theirs)])
  }
  if (rows.length === 0) return
  console.log('\nRatios, this checkout / the other (rate: more is better; CPU: less is better)')
  console.table(Object.fromEntries(rows))
}

function ratios(
  ours: readonly (Measured | null)[],
  theirs: readonly (Measured | null)[],
): { readonly rate: string; readonly cpu: string } {
  const pairs = ours.flatMap((result, round) => {
    const other = theirs[round]
    return result && other ? [{ result, other }] : []
  })
  const rates = pairs.map(({ result, other }) => result.perSecond / other.perSecond)
  const costs = pairs.map(({ result, other }) => cpuMs(result) / cpuMs(other))
  return { rate: withInterval(rates), cpu: withInterval(costs) }
}

/** Returns the median of ratios, with the interval that contains it with a probability of 95 %. */
function withInterval(values: readonly number[]): string {
  const [low, high] = medianInterval(values)
  return `${median(values).toFixed(3)} (${low.toFixed(3)}–${high.toFixed(3)})`
}

/**
 * Prints the latencies of all transactions of all rounds. A latency is the time from the scheduled start of a
 * transaction to its completion.
 */
export function printLatencies(measured: Rounds<Entry>, perSecond: number): void {
  console.log(`\nLatencies at ${perSecond} transactions a second`)
  printTable(
    measured,
    ({ name }) => name,
    (results) => {
      const latenciesMs = results.flatMap((result) => result.latenciesMs)
      return {
        transactions: latenciesMs.length,
        'p50 ms': median(latenciesMs).toFixed(1),
        'p99 ms': quantile(latenciesMs, 0.99).toFixed(1),
        'CPU ms each': median(results.map(({ pacedCpuMs }) => pacedCpuMs)).toFixed(1),
      }
    },
  )
}

/** Prints the results of one kind of transaction on several systems, one row for each system. */
export function printSystems<Key>(
  entry: Entry,
  measured: Rounds<Key>,
  nameOf: (key: Key) => string,
): void {
  console.log(`\n${entry.name}`)
  printTable(measured, nameOf, rateRow)
}

function printTable<Key>(
  measured: Rounds<Key>,
  nameOf: (key: Key) => string,
  rowOf: (results: readonly Measured[]) => Row,
): void {
  const rows = [...measured].flatMap(([key, results]) => {
    const usable = good(results)
    return usable.length > 0 ? [[nameOf(key), rowOf(usable)] as const] : []
  })
  console.table(Object.fromEntries(rows))
}
