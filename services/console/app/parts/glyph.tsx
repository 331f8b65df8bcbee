import type { ReactNode } from 'react'

/**
 * A state is always shown as a glyph, a word and a colour. A person who cannot see one of them still
 * sees the others.
 */
export type Tone = 'good' | 'bad' | 'warn' | 'wait' | 'info' | 'quiet'

const GLYPHS: Readonly<Record<Tone, string>> = {
  good: '✓',
  bad: '✕',
  warn: '!',
  wait: '‖',
  info: '◐',
  quiet: '○',
}

export function Glyph({
  tone,
  glyph,
}: {
  readonly tone: Tone
  readonly glyph?: string | undefined
}) {
  return (
    <span className={`glyph tone-${tone}`} aria-hidden="true">
      {glyph ?? GLYPHS[tone]}
    </span>
  )
}

export interface StateProps {
  readonly tone: Tone
  /** The glyph; by default the glyph of the tone. */
  readonly glyph?: string
  readonly children: ReactNode
}

export function State({ tone, glyph, children }: StateProps) {
  return (
    <span className={`state tone-${tone}`}>
      <Glyph tone={tone} glyph={glyph} />
      <span>{children}</span>
    </span>
  )
}
