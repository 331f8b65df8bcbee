/**
 * The lines of the verify-provider report: verdicts and observations. The lines contain no secrets and can be
 * published.
 */
import { type Colour, createTable, plain } from '../terminal.ts'
import { type Check, checks, type Expectations } from './expectations.ts'

export type Verdict = 'as documented' | 'differs' | 'skipped' | 'failed'

/** A line of the report. `check` is `null` if the whole step was skipped or failed. */
export interface Line {
  readonly check: Check | null
  readonly verdict: Verdict
  /** The observation, worded by this program. The text contains only names and numbers from a response (wording.ts). */
  readonly seen: string
}

export interface ReportedLine extends Line {
  readonly step: string
}

export const asDocumented = (check: Check, seen: string): Line => ({
  check,
  verdict: 'as documented',
  seen,
})
export const differs = (check: Check, seen: string): Line => ({ check, verdict: 'differs', seen })
export const failed = (check: Check | null, seen: string): Line => ({
  check,
  verdict: 'failed',
  seen,
})
export const skipped = (check: Check | null, seen: string): Line => ({
  check,
  verdict: 'skipped',
  seen,
})
/**
 * Returns the line for a check with two possible behaviours. The services can handle both behaviours, but only one of
 * them is documented.
 */
export const judged = (check: Check, isExpected: boolean, seen: string): Line =>
  (isExpected ? asDocumented : differs)(check, seen)

const colours: Readonly<Record<Verdict, Colour>> = {
  'as documented': 'green',
  differs: 'yellow',
  skipped: 'dim',
  failed: 'red',
}

/** Returns the report as a table. A line that deviates is followed by the expected behaviour. */
export function reportTable(
  lines: readonly ReportedLine[],
  expectations: Expectations,
  paint: (colour: Colour, text: string) => string,
): string[] {
  const [header = '', ...rows] = createTable(['VERDICT', 'STEP', 'CHECK', 'SEEN'])(
    lines.map(({ verdict, step, check, seen }) => [verdict, step, check ?? '-', seen]),
  )
  return [
    header,
    ...lines.flatMap(({ verdict, check }, index) => {
      const row = rows[index] ?? ''
      const line = paint(colours[verdict], row.slice(0, verdict.length)) + row.slice(verdict.length)
      const isDeviation = verdict === 'differs' || verdict === 'failed'
      return check === null || !isDeviation
        ? [line]
        : [line, `${' '.repeat(15)}→ expected: ${expected(check, expectations)}`]
    }),
  ]
}

const expected = (check: Check, { words }: Expectations): string =>
  `${checks[check][words]} (docs/intuit.md, ${checks[check].section})`

export const reportDocument = (
  { step, check, verdict, seen }: ReportedLine,
  { words }: Expectations,
) => ({
  Step: step,
  Check: check,
  Verdict: verdict,
  Seen: plain(seen),
  Expected: check === null ? null : checks[check][words],
  Section: check === null ? null : checks[check].section,
})

/** Returns the number of lines with each verdict: `14 as documented, 2 differ, 1 skipped.` */
export function summaryOf(lines: readonly Line[]): string {
  const words: Readonly<Record<Verdict, string>> = {
    'as documented': 'as documented',
    differs: 'differ',
    skipped: 'skipped',
    failed: 'failed',
  }
  const counts = (Object.keys(words) as Verdict[]).flatMap((verdict) => {
    const count = lines.filter((line) => line.verdict === verdict).length
    return count === 0 ? [] : [`${count} ${words[verdict]}`]
  })
  return `${counts.join(', ')}.`
}
