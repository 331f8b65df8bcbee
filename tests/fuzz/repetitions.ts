/** Texts that repeat a fragment, for which parsers and regular expressions often need more than linear time. */

export interface Repetition {
  /** `json` is the text of a JSON value, or the beginning of one. */
  readonly syntax: 'text' | 'json'
  readonly before: string
  readonly fragment: string
  readonly after: string
}

const fragments = [
  '\t',
  ' ',
  ' \t',
  '0',
  '10',
  'a',
  'word ',
  'a,',
  ', ',
  ',',
  ';',
  'a=b; ',
  '=',
  '&a=b',
  '/',
  '../',
  '\\',
  '\\"',
  '"',
  '""',
  "'",
  '`',
  ':',
  '.',
  'a.',
  '-',
  '_',
  '[',
  '[a](',
  '(',
  '{',
  '<a ',
  '*',
  '#',
  '@',
  'a@',
  '%20',
  '%',
  '+',
  '|',
  '\u00e9',
  'Bearer ',
  '00-0',
  'W/"a", ',
  'gzip;q=0.1, ',
  'http://a',
]

/** Each fragment also in the middle: most expressions search again only if the text after a repetition does not match. */
const texts = fragments.flatMap((fragment): Repetition[] => [
  { syntax: 'text', before: 'a', fragment, after: '!' },
  { syntax: 'text', before: '', fragment, after: '' },
])

const inString = (fragment: string): string => JSON.stringify(fragment).slice(1, -1)
const json: readonly Repetition[] = [
  { before: '1.', fragment: '0', after: '1' },
  { before: '1.', fragment: '0', after: '' },
  { before: '1', fragment: '0', after: '' },
  { before: '1', fragment: '0', after: '.10' },
  { before: '-0.', fragment: '0', after: '1e-5' },
  { before: '1e', fragment: '0', after: '1' },
  { before: '1.', fragment: '01', after: '' },
  { before: '1', fragment: '9', after: 'e5' },
  { before: '', fragment: '[', after: '' },
  { before: '', fragment: '{"a":', after: '' },
  { before: '[0', fragment: ',0', after: ']' },
  { before: '[[]', fragment: ',[]', after: ']' },
  { before: '[""', fragment: ',"a"', after: ']' },
  { before: '[0', fragment: ',1.10', after: ']' },
  { before: '[{}', fragment: ',{"a":0}', after: ']' },
  { before: '{"a":0', fragment: ',"a":0', after: '}' },
  { before: '{"a":0', fragment: ',"__proto__":0', after: '}' },
  { before: '', fragment: ' ', after: '1' },
  { before: '1', fragment: '\n', after: 'x' },
  { before: '"', fragment: '\\u0061', after: '"' },
  { before: '"', fragment: '\\ud800', after: '"' },
  { before: '"', fragment: '\\u0000', after: '"' },
  { before: '"', fragment: '\\', after: '"' },
  { before: '"', fragment: 'a', after: '' },
  ...texts.map(({ before, fragment, after }) => ({
    before: `"${before}`,
    fragment: inString(fragment),
    after: `${after}"`,
  })),
].map((repetition) => ({ syntax: 'json', ...repetition }))

const all = { text: texts, json }

/**
 * Returns the repetition number `pass` of a place; `null` after the last one. Each place begins with another one, which
 * `first` selects.
 */
export function repetitionOf(
  syntax: Repetition['syntax'],
  pass: number,
  first = 0,
): Repetition | null {
  const list = all[syntax]
  return pass < list.length ? (list[(first + pass) % list.length] ?? null) : null
}

/** Returns a text of about `length` characters. */
export function repeated({ before, fragment, after }: Repetition, length: number): string {
  const left = length - before.length - after.length
  return before + fragment.repeat(Math.max(1, Math.floor(left / fragment.length))) + after
}
