import type { RunRow } from '../../src/contracts/runs.ts'
import { State, type StateGlyph, type Tone } from './glyph.tsx'

/** The tone and the glyph of each status. */
export const STATUSES: Readonly<
  Record<RunRow['Status'], { readonly tone: Tone; readonly glyph: StateGlyph }>
> = {
  Queued: { tone: 'quiet', glyph: '○' },
  Running: { tone: 'info', glyph: '◐' },
  Retrying: { tone: 'warn', glyph: '↻' },
  Waiting: { tone: 'wait', glyph: '‖' },
  Completed: { tone: 'good', glyph: '✓' },
  Failed: { tone: 'bad', glyph: '✕' },
  Cancelled: { tone: 'quiet', glyph: '⊘' },
}

/** Shows the status of a run by a glyph, a word and a colour. */
export function RunStatus({ status }: { readonly status: RunRow['Status'] }) {
  const { tone, glyph } = STATUSES[status]
  return (
    <State tone={tone} glyph={glyph}>
      {status}
    </State>
  )
}
