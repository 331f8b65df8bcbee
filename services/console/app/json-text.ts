/**
 * Finds the first place at which a text is not JSON, formats JSON with line breaks, and folds its inner levels. Formatting
 * does not change numbers and escapes, because parsing would lose the last digits of a long number.
 */

export interface JsonFault {
  /** Lines and columns are counted from 1. */
  readonly line: number
  readonly column: number
  /** What is missing at this place, such as `a comma or }`. */
  readonly expected: string
}

const SPACE = /[ \t\r\n]*/y
const TEXT =
  // oxlint-disable-next-line no-control-regex -- JSON does not allow control characters in strings
  /"[^"\\\u0000-\u001f]*(?:\\(?:["\\/bfnrt]|u[\da-fA-F]{4})[^"\\\u0000-\u001f]*)*/y
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y
const WORD = /true|false|null/y

/** What the JSON grammar allows at the current place. */
type Expected = 'value' | 'first value' | 'name' | 'first name' | 'colon' | 'end of value'

const WORDS: Readonly<Record<Exclude<Expected, 'end of value'>, string>> = {
  value: 'a value',
  'first value': 'a value or ]',
  name: 'a name in double quotes',
  'first name': 'a name in double quotes or }',
  colon: 'a colon',
}

/** Calls `onToken` for each token, until the text ends or is not JSON. Returns the place and what is missing there. */
function scan(
  text: string,
  onToken: (token: string) => void,
): { readonly at: number; readonly expected: string } | null {
  const open: ('{' | '[')[] = []
  let expected = 'value' as Expected
  let at = 0
  /** Returns the text that `pattern` matches at the current place; `null` if `pattern` does not match there. */
  const matched = (pattern: RegExp): string | null => {
    pattern.lastIndex = at
    return pattern.exec(text)?.[0] || null
  }
  const take = (token: string, next: Expected): void => {
    onToken(token)
    at += token.length
    expected = next
  }
  for (;;) {
    at += matched(SPACE)?.length ?? 0
    const character = text[at]
    const innermost = open.at(-1)
    const isValue = expected === 'value' || expected === 'first value'
    if (expected === 'end of value') {
      if (innermost === undefined)
        return character === undefined ? null : { at, expected: 'the end of the text' }
      const close = innermost === '{' ? '}' : ']'
      if (character === ',') take(',', innermost === '{' ? 'name' : 'value')
      else if (character === close) {
        open.pop()
        take(close, 'end of value')
      } else return { at, expected: `a comma or ${close}` }
    } else if (expected === 'colon') {
      if (character !== ':') return { at, expected: WORDS.colon }
      take(':', 'value')
    } else if (character === '"') {
      const token = matched(TEXT) ?? ''
      const end = at + token.length
      if (text[end] !== '"') return { at: end, expected: missingInText(text[end]) }
      take(`${token}"`, isValue ? 'end of value' : 'colon')
    } else if (isValue && (character === '{' || character === '[')) {
      open.push(character)
      take(character, character === '{' ? 'first name' : 'first value')
    } else if (
      (expected === 'first name' && character === '}') ||
      (expected === 'first value' && character === ']')
    ) {
      open.pop()
      take(character, 'end of value')
    } else {
      const token = isValue ? (matched(NUMBER) ?? matched(WORD)) : null
      if (token === null) return { at, expected: WORDS[expected] }
      take(token, 'end of value')
    }
  }
}

const missingInText = (character: string | undefined): string =>
  character === '\\' ? String.raw`an escape that JSON knows, such as \n` : 'a closing double quote'

/** Returns the first place at which a text is not JSON; `null` if the text is JSON. */
export function jsonFault(text: string): JsonFault | null {
  const fault = scan(text, () => {})
  if (fault === null) return null
  const before = text.slice(0, fault.at)
  return {
    line: before.split('\n').length,
    column: fault.at - before.lastIndexOf('\n'),
    expected: fault.expected,
  }
}

/** Returns JSON with two spaces of indentation; a text that is not JSON stays as it is. */
export function prettyJson(text: string): string {
  const tokens: string[] = []
  if (scan(text, (token) => tokens.push(token)) !== null) return text
  const pretty: string[] = []
  let depth = 0
  const newLine = (): string => `\n${'  '.repeat(depth)}`
  for (const [index, token] of tokens.entries()) {
    const before = tokens[index - 1]
    if (token === '}' || token === ']') {
      depth -= 1
      if (before !== '{' && before !== '[') pretty.push(newLine())
    } else if (before === '{' || before === '[' || before === ',') pretty.push(newLine())
    if (token === '{' || token === '[') depth += 1
    pretty.push(token === ':' ? ': ' : token)
  }
  return pretty.join('')
}

/** An object or an array that can be folded: its first line, the lines in it, and its last line. */
export interface JsonFold {
  readonly head: string
  readonly parts: readonly JsonPart[]
  readonly tail: string
  /** The number of members of the object, or of elements of the array. */
  readonly count: number
}
/** A text of several lines, or a part that can be folded. */
export type JsonPart = string | JsonFold

/** Objects and arrays beyond this level are folded. The whole text is the first level. */
const SHOWN_LEVELS = 3
const INDENT = 2

/** Returns JSON with line breaks and folded inner levels; `null` if the text is not JSON. */
export function foldedJson(text: string): readonly JsonPart[] | null {
  if (jsonFault(text) !== null) return null
  const lines = prettyJson(text).split('\n')
  let at = 0
  /** Reads the lines of a container until its last line, which has the indentation `end`. */
  function partsUntil(end: number): {
    readonly parts: readonly JsonPart[]
    readonly count: number
  } {
    const parts: JsonPart[] = []
    let plain: string[] = []
    let count = 0
    for (; at < lines.length; at += 1) {
      const line = lines[at] ?? ''
      const indent = line.length - line.trimStart().length
      if (indent === end) break
      if (indent === end + INDENT && !/^[}\]]/.test(line.trimStart())) count += 1
      if (/[{[]$/.test(line) && indent >= SHOWN_LEVELS * INDENT) {
        if (plain.length > 0) parts.push(plain.join('\n'))
        plain = []
        at += 1
        const inner = partsUntil(indent)
        parts.push({ head: line, ...inner, tail: lines[at] ?? '' })
      } else plain.push(line)
    }
    if (plain.length > 0) parts.push(plain.join('\n'))
    return { parts, count }
  }
  return partsUntil(-INDENT).parts
}
