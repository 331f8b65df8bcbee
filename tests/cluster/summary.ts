/**
 * Creates the table of docs/clusters.md. A fault is caused in several rounds, and the table shows the combined
 * results of these rounds for each fault.
 */
import type { Round } from './verdict.ts'

const HEADER = [
  '| Fault | Rounds | Orders | Lost | Doubled | Stuck | Locked out | Failed calls | Recovery |',
  '| --- | --- | --- | --- | --- | --- | --- | --- | --- |',
]

/** Returns a Markdown table with a row for each fault. The rows are sorted by the first occurrence of each fault. */
export function summaryTable(rounds: readonly Round[]): readonly string[] {
  const byFault = Map.groupBy(rounds, ({ name }) => name)
  return [...HEADER, ...[...byFault].map(([name, same]) => rowOf(name, same))]
}

function rowOf(name: string, rounds: readonly Round[]): string {
  const sum = (countOf: (round: Round) => number): string =>
    rounds.reduce((total, round) => total + countOf(round), 0).toLocaleString('en')
  const seconds = rounds.map(({ recoverySeconds }) => recoverySeconds)
  const [least, greatest] = [Math.min(...seconds), Math.max(...seconds)].map((s) => s.toFixed(1))
  const cells = [
    `\`${name}\``,
    sum(() => 1),
    sum(({ orders }) => orders),
    sum(({ lost }) => lost.length),
    sum(({ doubled }) => doubled.length),
    sum(({ stuck }) => stuck.length),
    sum(({ lockedOut }) => lockedOut.length),
    `${sum(({ failedCalls }) => failedCalls)} of ${sum(({ calls }) => calls)}`,
    least === greatest ? `${least} s` : `${least} to ${greatest} s`,
  ]
  return `| ${cells.join(' | ')} |`
}
