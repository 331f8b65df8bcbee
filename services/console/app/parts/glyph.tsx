import type { ReactNode } from 'react'

/**
 * A state is always shown as a glyph, a word and a colour. A person who cannot see one of them still
 * sees the others.
 */
export type Tone = 'good' | 'bad' | 'warn' | 'wait' | 'info' | 'quiet'

/**
 * The glyphs of the states. Only characters that the usual fonts contain are used. The character U+23F8 for a pause, for
 * example, is an empty box in DejaVu.
 */
export type StateGlyph = '✓' | '✕' | '!' | '‖' | '◐' | '○' | '↻' | '⊘' | '·'

const GLYPHS: Readonly<Record<Tone, StateGlyph>> = {
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
  readonly glyph?: StateGlyph | undefined
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
  readonly glyph?: StateGlyph
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
