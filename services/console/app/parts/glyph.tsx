/** A state is always shown as a glyph, a word and a colour, so that no person depends on one of them. */
export type Tone = 'good' | 'bad' | 'warn' | 'wait' | 'info' | 'quiet'

const GLYPHS: Readonly<Record<Tone, string>> = {
  good: '✓',
  bad: '✕',
  warn: '!',
  wait: '⏸',
  info: '◐',
  quiet: '○',
}

export function Glyph({ tone }: { readonly tone: Tone }) {
  return (
    <span className={`glyph tone-${tone}`} aria-hidden="true">
      {GLYPHS[tone]}
    </span>
  )
}

export function State({ tone, children }: { readonly tone: Tone; readonly children: string }) {
  return (
    <span className={`state tone-${tone}`}>
      <Glyph tone={tone} />
      <span>{children}</span>
    </span>
  )
}
