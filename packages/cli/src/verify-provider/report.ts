/** The lines of a report that may be pasted into an issue: verdicts, what was seen, and nothing secret. */
import { type Colour, createTable, plain } from '../terminal.ts'
import { type Check, checks, type Expectations } from './expectations.ts'

export type Verdict = 'as documented' | 'differs' | 'skipped' | 'failed'

/** `check` is `null` if a step was skipped or failed as a whole. */
export interface Line {
  readonly check: Check | null
  readonly verdict: Verdict
  /** Our own text; of the provider's response only names and numbers (see wording.ts). */
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
/** The host can work with either, but only one is documented. */
export const judged = (check: Check, isExpected: boolean, seen: string): Line =>
  (isExpected ? asDocumented : differs)(check, seen)

const colours: Readonly<Record<Verdict, Colour>> = {
  'as documented': 'green',
  differs: 'yellow',
  skipped: 'dim',
  failed: 'red',
}

/** A table whose deviating lines are followed by what was expected. */
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

/** `14 as documented, 2 differ, 1 skipped.` */
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
