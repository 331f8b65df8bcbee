/** A file with a transaction on each line, and the results of its lines. */
import type { QueuedLines } from '../src/contracts/queue.ts'
import { jsonFault } from './json-text.ts'
import type { Line } from './line-diff.ts'

/** The maximum number of lines that the coordinator accepts in one request. */
const MAX_LINES = 10_000
const MAX_BYTES = 8_388_608

export interface LineFile {
  readonly text: string
  /** The lines of the file that are not empty. */
  readonly lines: readonly Line[]
  /** Why the file cannot be sent; `null` if it can be sent. */
  readonly fault: string | null
}

/** Reads the text of a file. `bytes` is the size of the file. */
export function lineFile(text: string, bytes: number): LineFile {
  const lines = text
    .split('\n')
    .map((line, index): Line => ({ number: index + 1, text: line }))
    .filter((line) => line.text.trim() !== '')
  const fault =
    bytes > MAX_BYTES
      ? 'The file has more than 8 MB. Split it.'
      : lines.length === 0
        ? 'The file has no line.'
        : lines.length > MAX_LINES
          ? `The file has ${lines.length} lines. At most ${MAX_LINES} can be queued at once: split it.`
          : null
  return { text, lines, fault }
}

export interface LineResult {
  readonly line: number
  readonly id: string | null
  readonly outcome: QueuedLines['Results'][number]['Outcome']
  readonly errors: readonly string[]
}

const isFailure = ({ outcome }: LineResult): boolean =>
  outcome === 'conflict' || outcome === 'invalid'

/**
 * Returns a fault that names the place where a line is not JSON; `null` if the line is JSON. The
 * response of the coordinator does not contain this place.
 */
function faultsOf(line: Line | undefined): readonly string[] | null {
  const fault = jsonFault(line?.text ?? '')
  return fault && [`not JSON, column ${fault.column} needs ${fault.expected}`]
}

/** Returns the result of each line with the number of the line in the file. Failures come first. */
export function lineResults({ lines }: LineFile, { Results }: QueuedLines): readonly LineResult[] {
  const results = Results.map(({ TransactionID, Outcome, Errors }, index): LineResult => ({
    line: lines[index]?.number ?? index + 1,
    id: TransactionID,
    outcome: Outcome,
    errors: TransactionID === null ? (faultsOf(lines[index]) ?? Errors) : Errors,
  }))
  return [...results.filter(isFailure), ...results.filter((result) => !isFailure(result))]
}

const WORDS: Readonly<Record<LineResult['outcome'], string>> = {
  queued: 'queued',
  absorbed: 'taken over by a waiting run',
  exists: 'there already, with the same data',
  conflict: 'id taken by other data',
  invalid: 'not valid',
}

/** Returns the result of a line as text, with the faults of the line. */
export const resultText = ({ outcome, errors }: LineResult): string =>
  [WORDS[outcome], ...errors].join(': ')

/** Returns how many lines have each result, such as `118 queued, 2 not valid`. */
export const summaryOf = (results: readonly LineResult[]): string =>
  Object.entries(WORDS)
    .map(([outcome, words]) => ({
      count: results.filter((result) => result.outcome === outcome).length,
      words,
    }))
    .filter(({ count }) => count > 0)
    .map(({ count, words }) => `${count} ${words}`)
    .join(' · ')

/** Returns the results as JSON lines. */
export const resultLines = (results: readonly LineResult[]): string =>
  results
    .map(({ line, id, outcome, errors }) =>
      JSON.stringify({
        Line: line,
        TransactionID: id,
        Outcome: outcome,
        ...(errors.length > 0 && { Errors: errors }),
      }),
    )
    .join('\n')
    .concat('\n')
