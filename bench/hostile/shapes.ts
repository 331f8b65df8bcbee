/** The shapes of bodies that take parsers longest. */

/** How a body is built: one value, or many lines or elements of up to `bytes`, each with a value in it. */
export interface Format {
  readonly kind: 'value' | 'lines' | 'array'
  readonly before: string
  readonly after: string
  /** The largest line or element. */
  readonly bytes?: number
}
type MakeBody = (format: Format, bytes: number) => string

/** As many members as JSON of a request may have, with some left for what surrounds them. */
const MEMBERS = 24_900

const repeated =
  (begin: string, fragment: string, end = ''): ((bytes: number) => string) =>
  (bytes) =>
    begin +
    fragment.repeat(
      Math.max(1, Math.floor((bytes - begin.length - end.length) / fragment.length)),
    ) +
    end

/** Returns a value of about `bytes`, of which `count` fragments are at the beginning, and a string is the rest. */
const filled =
  (begin: string, fragment: string, rest: (text: string) => string) =>
  (bytes: number): string => {
    const count = Math.min(MEMBERS, Math.floor((bytes - 40) / fragment.length))
    const value = begin + fragment.repeat(Math.max(0, count))
    return value + rest('a'.repeat(Math.max(0, bytes - value.length - 10)))
  }

const values: Readonly<Record<string, (bytes: number) => string>> = {
  brackets: repeated('', '['),
  'nested objects': repeated('', '{"a":'),
  commas: repeated('[0', ',0', ']'),
  'empty objects': repeated('[0', ',{}', ']'),
  'line feeds': repeated('', '\n', '1'),
  escapes: repeated('"', String.raw`\u0061`, '"'),
  quotes: repeated('"', String.raw`\"`, '"'),
  zeros: repeated('1.', '0', '1'),
  'a long string': repeated('"', 'a', '"'),
  'permitted elements': filled('[', '0,', (text) => `"${text}"]`),
  'permitted objects': filled('[', '{},', (text) => `"${text}"]`),
  'permitted members': filled('{', '"a":0,', (text) => `"b":"${text}"}`),
}

/** For each shape, the function that builds a body of about the largest size. */
export const shapes: Readonly<Record<string, MakeBody>> = Object.fromEntries(
  Object.entries(values).map(([name, make]): [string, MakeBody] => [
    name,
    ({ kind, before, after, bytes: lineBytes = Number.POSITIVE_INFINITY }, bytes) => {
      const around = before.length + after.length
      if (kind === 'value') return before + make(bytes - around) + after
      // A shape that contains line feeds has no lines of another size.
      if (kind === 'lines' && name === 'line feeds') return make(bytes)
      const line = before + make(lineBytes - around - 1) + after
      const count = Math.max(1, Math.floor((bytes - 2) / (line.length + 1)))
      const lines = Array.from({ length: count }, () => line)
      return kind === 'lines' ? lines.join('\n') : `[${lines.join(',')}]`
    },
  ]),
)
