/** The lines of the report: verdicts and observations. They contain no secrets and can be published. */
import { type Colour, plain, verdictTable } from '../terminal.ts'
import { type Check, checks, type Expectations } from './expectations.ts'

/** The verdicts, with their colour and their word in the summary. */
const verdicts = {
  'as documented': { colour: 'green', word: 'as documented' },
  differs: { colour: 'yellow', word: 'differ' },
  skipped: { colour: 'dim', word: 'skipped' },
  failed: { colour: 'red', word: 'failed' },
} as const satisfies Readonly<Record<string, { readonly colour: Colour; readonly word: string }>>
type Verdict = keyof typeof verdicts

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

const lineWith =
  (verdict: Verdict) =>
  (check: Check | null, seen: string): Line => ({ check, verdict, seen })
export const asDocumented = lineWith('as documented')
export const differs = lineWith('differs')
export const failed = lineWith('failed')
export const skipped = lineWith('skipped')
/**
 * Returns the line for a check with two possible behaviours. The services can handle both behaviours, but only one of
 * them is documented.
 */
export const judged = (check: Check, isExpected: boolean, seen: string): Line =>
  (isExpected ? asDocumented : differs)(check, seen)

/** Returns the report as a table. A line that deviates is followed by the expected behaviour. */
export const reportTable = (
  lines: readonly ReportedLine[],
  { words }: Expectations,
  paint: (colour: Colour, text: string) => string,
): string[] =>
  verdictTable(
    {
      VERDICT: 'verdict',
      STEP: 'step',
      CHECK: ({ check }) => check ?? '-',
      SEEN: 'seen',
    },
    lines,
    ({ verdict, check }) => ({
      colour: verdicts[verdict].colour,
      note:
        check !== null && (verdict === 'differs' || verdict === 'failed')
          ? `expected: ${checks[check][words]} (docs/intuit.md, ${checks[check].section})`
          : null,
    }),
    paint,
  )

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
  const counts = Object.entries(verdicts).flatMap(([verdict, { word }]) => {
    const count = lines.filter((line) => line.verdict === verdict).length
    return count === 0 ? [] : [`${count} ${word}`]
  })
  return `${counts.join(', ')}.`
}
