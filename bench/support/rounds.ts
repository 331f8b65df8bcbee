import type { LoadResult } from './load.ts'
import { cpuSeconds, residentMb } from './process-usage.ts'
import { median } from './statistics.ts'

/** A server process under measurement. */
export interface Side {
  readonly url: string
  readonly pid: number
}

export type Measured = LoadResult & {
  /** Processor time of the server process per request. */
  readonly cpuMicros: number
  /** Resident memory of the server process at the end of the round. */
  readonly residentMb: number
}

/** The results of each measured server in one round. */
export type Round<Name extends string> = Readonly<Record<Name, Measured>>

/**
 * Sends requests to each server once per round, one server after the other. The machine's speed drifts, so only
 * results of the same round are compared. The results do not include the first `warmUp` rounds, and the requests of
 * `lead`, which precede those of each measurement.
 */
export async function measureRounds<Name extends string>(
  sides: Readonly<Record<Name, Side>>,
  { warmUp, rounds }: { readonly warmUp: number; readonly rounds: number },
  load: (name: Name) => Promise<LoadResult>,
  lead?: (name: Name) => Promise<unknown>,
): Promise<readonly Round<Name>[]> {
  const measured: Round<Name>[] = []
  for (let round = 0; round < warmUp + rounds; round += 1) {
    const results: [string, Measured][] = []
    for (const [name, { pid }] of Object.entries<Side>(sides)) {
      await lead?.(name as Name)
      const before = cpuSeconds(pid)
      const result = await load(name as Name)
      const cpuMicros = ((cpuSeconds(pid) - before) / result.requests) * 1e6
      results.push([name, { ...result, cpuMicros, residentMb: residentMb(pid) }])
    }
    if (round >= warmUp) measured.push(Object.fromEntries(results) as Round<Name>)
  }
  return measured
}

/**
 * Returns a table with one row per server: the medians over the rounds, and the medians of the ratios to the server
 * `base`. Each ratio compares two results of the same round.
 */
export function compare<Name extends string>(
  rounds: readonly Round<Name>[],
  names: readonly Name[],
  base: Name,
): Record<string, Record<string, string | number>> {
  const rowOf = (name: Name) => {
    const middle = (of: (round: Round<Name>) => number): number => median(rounds.map(of))
    const cpuMicros = middle((round) => round[name].cpuMicros)
    return {
      'per second': Math.round(middle((round) => round[name].perSecond)),
      best: Math.round(Math.max(...rounds.map((round) => round[name].perSecond))),
      'p50 ms': middle((round) => round[name].p50Ms).toFixed(1),
      'p99 ms': middle((round) => round[name].p99Ms).toFixed(1),
      'CPU µs each': Math.round(cpuMicros),
      'MB first, last': [rounds[0], rounds.at(-1)]
        .map((round) => round?.[name].residentMb.toFixed(0))
        .join(', '),
      'per CPU second': Math.round(1e6 / cpuMicros),
      [`rate : ${base}`]: middle((round) => round[name].perSecond / round[base].perSecond).toFixed(
        3,
      ),
      [`CPU : ${base}`]: middle((round) => round[name].cpuMicros / round[base].cpuMicros).toFixed(
        3,
      ),
    }
  }
  return Object.fromEntries(names.map((name) => [name, rowOf(name)]))
}
