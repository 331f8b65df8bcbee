import type { RunRow } from '../../src/contracts/runs.ts'
import { State, type Tone } from './glyph.tsx'

const STATUSES: Readonly<
  Record<RunRow['Status'], { readonly tone: Tone; readonly glyph: string }>
> = {
  Queued: { tone: 'quiet', glyph: '○' },
  Running: { tone: 'info', glyph: '◐' },
  Retrying: { tone: 'warn', glyph: '↻' },
  Waiting: { tone: 'wait', glyph: '‖' },
  Completed: { tone: 'good', glyph: '✓' },
  Failed: { tone: 'bad', glyph: '✕' },
  Cancelled: { tone: 'quiet', glyph: '⊘' },
}

/** The status of a run: glyph, word and colour. */
export function RunStatus({ status }: { readonly status: RunRow['Status'] }) {
  const { tone, glyph } = STATUSES[status]
  return (
    <State tone={tone} glyph={glyph}>
      {status}
    </State>
  )
}
