import type { RunRow } from '../../src/contracts/runs.ts'
import { asksAgain } from '../../src/isomorphic/texts.ts'
import { State, type StateGlyph, type Tone } from './glyph.tsx'

interface Look {
  readonly tone: Tone
  readonly glyph: StateGlyph
}

/** The tone and the glyph of each status. */
const STATUSES: Readonly<Record<RunRow['Status'], Look>> = {
  Queued: { tone: 'quiet', glyph: '○' },
  Running: { tone: 'info', glyph: '◐' },
  Retrying: { tone: 'warn', glyph: '↻' },
  Waiting: { tone: 'wait', glyph: '‖' },
  Completed: { tone: 'good', glyph: '✓' },
  Failed: { tone: 'bad', glyph: '✕' },
  Cancelled: { tone: 'quiet', glyph: '⊘' },
  Undoing: { tone: 'info', glyph: '◐' },
  Undone: { tone: 'quiet', glyph: '⊘' },
  UndoFailed: { tone: 'bad', glyph: '✕' },
}

const OTHER: Look = { tone: 'quiet', glyph: '○' }

/** Returns the tone and the glyph of a status, also of one that only a later release knows. */
export const lookOf = (status: string): Look =>
  (STATUSES as Readonly<Record<string, Look>>)[status] ?? OTHER

/** The status that the pages show: a run whose step asks again later waits, and nothing of it is retried. */
export const shownStatus = (run: Pick<RunRow, 'Status' | 'ErrorClass'>): RunRow['Status'] =>
  asksAgain(run) ? 'Waiting' : run.Status

/** Shows the status of a run or an item by a glyph, a word and a colour; a status that it does not know as a word. */
export function RunStatus({ status }: { readonly status: string }) {
  const { tone, glyph } = lookOf(status)
  return (
    <State tone={tone} glyph={glyph}>
      {status}
    </State>
  )
}
