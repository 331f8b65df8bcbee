import { jsonExcess, parseJson } from '@integration-host/shared/json'

/** Any value that JSON can express. */
export type Json =
  | string
  | number
  | boolean
  | null
  | readonly Json[]
  | { readonly [key: string]: Json }

/**
 * A value that may be passed where JSON is stored or sent. Members that are `undefined` are omitted, as by
 * JSON.stringify.
 */
export type JsonInput =
  | string
  | number
  | boolean
  | null
  | readonly JsonInput[]
  | { readonly [key: string]: JsonInput | undefined }

/**
 * Returns the text with U+0000 and lone surrogates replaced by U+FFFD. PostgreSQL can store neither, and a
 * whole response must not be lost because of one character.
 */
export const normalizedText = (text: string): string =>
  text.toWellFormed().replaceAll('\0', '\uFFFD')

// Matches every escape in text that JSON.stringify returned; those of U+0000 and lone surrogates are longer than two
// characters. Matching all escapes from left to right finds out which `\u` is an escape, and which follows an escaped
// backslash and is ordinary text. A lookbehind for the number of backslashes would take quadratic time.
const ESCAPE = /\\(?:u(?:0000|d[89a-f][0-9a-f]{2})|.)/g

const replaceEscapes = (text: string): string =>
  // Searches for any `\u` first, because most texts contain none, and this search takes a tenth of the time.
  text.includes('\\u')
    ? text.replaceAll(ESCAPE, (escape) => (escape.length > 2 ? '\\ufffd' : escape))
    : text

/**
 * Returns the value as JSON that every transaction source stores unchanged. Returns `null` for values that JSON cannot
 * express (`undefined`, functions).
 */
export function normalizedJson(value: unknown): Json {
  const text = JSON.stringify(value) as string | undefined
  return text === undefined ? null : (JSON.parse(replaceEscapes(text)) as Json)
}

/** Whether a value can be stored unchanged. A request whose initial data cannot be stored unchanged is rejected. */
export function isPreservedAsJson(value: unknown): boolean {
  const text = JSON.stringify(value) ?? ''
  return replaceEscapes(text) === text
}

/**
 * Parses JSON from a client; returns `undefined` for text that is not JSON or exceeds the limits of JSON. A number that a double cannot represent
 * exactly (`9007199254740993`, `1e400`) would be changed without notice. In place of such a number, the result contains
 * a value that `isPreservedAsJson` rejects.
 */
export function parseClientJson(text: string): unknown {
  // Most texts contain no number that could lose digits. Such texts are parsed without the reviver, because a reviver
  // makes parsing many times slower.
  if (!MAY_LOSE_DIGITS.test(text)) return parseJson(text)
  if (jsonExcess(text) !== null) return undefined
  try {
    return JSON.parse(text, markLoss)
  } catch {
    return undefined
  }
}

const MAY_LOSE_DIGITS = /[\d.]{16}|\d[eE]/
const NOT_PRESERVED = '\0'

// The cast adds the third parameter, which TypeScript's types lack: https://tc39.es/proposal-json-parse-with-source/
function markLoss(_key: string, value: unknown, context?: { readonly source?: string }): unknown {
  if (typeof value !== 'number') return value
  const isPreserved = decimalOf(context?.source ?? '') === decimalOf(String(value))
  return isPreserved ? value : NOT_PRESERVED
}

/**
 * Returns a canonical text of a number, which is the same for all notations of the number, such as `150` and `1.50e2`.
 */
function decimalOf(number: string): string {
  const parts = /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?$/i.exec(number)
  if (parts === null) return number
  const [, sign = '', whole = '', fraction = '', exponent = '0'] = parts
  const digits = (whole + fraction).replace(/^0+/, '')
  let end = digits.length
  while (digits[end - 1] === '0') end -= 1
  const significant = digits.slice(0, end)
  const place = Number(exponent) - fraction.length + digits.length - significant.length
  return significant === '' ? '0' : `${sign}${significant}e${place}`
}

/**
 * The maximum nesting depth of initial data. There is a maximum because recursive parsers overflow the stack at a few
 * thousand levels.
 */
export const MAX_DEPTH = 100

/**
 * Whether a value is nested deeper than `limit`. The check goes level by level, because recursion could
 * overflow the stack.
 */
export function isDeeperThan(value: unknown, limit: number): boolean {
  let level: unknown[] = [value]
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > limit) return true
    level = level.flatMap((one) =>
      typeof one === 'object' && one !== null ? (Object.values(one) as unknown[]) : [],
    )
  }
  return false
}
