export type Json =
  | string
  | number
  | boolean
  | null
  | readonly Json[]
  | { readonly [key: string]: Json }

/**
 * Text as every source can keep it. Postgres takes neither U+0000 nor half a surrogate pair, and a whole
 * answer must not be lost for one of them: both become U+FFFD.
 */
export const normalizedText = (text: string): string =>
  text.toWellFormed().replaceAll('\0', '\uFFFD')

// In the output of JSON.stringify a NUL and a lone surrogate appear as escapes after an even number of backslashes.
const UNSTORABLE = /(?<=(?<!\\)(?:\\\\)*)\\u(?:0000|d[89a-f][0-9a-f]{2})/g

/** A value as JSON that every source can keep; what JSON has no form for (`undefined`, functions) is null. */
export function normalizedJson(value: unknown): Json {
  const text = JSON.stringify(value) as string | undefined
  if (text === undefined) return null
  // Looking for them takes ten times as long as seeing that there are no escapes at all.
  return JSON.parse(text.includes('\\u') ? text.replaceAll(UNSTORABLE, '\\ufffd') : text) as Json
}

/** Whether a value would be kept exactly as it is. What callers queue is refused rather than changed. */
export const isPreservedAsJson = (value: unknown): boolean =>
  (JSON.stringify(value) ?? '').search(UNSTORABLE) === -1

/**
 * Reads JSON that others wrote. A number that would come back as another one, because a double does not hold it
 * (`9007199254740993`, `1e400`), becomes what `isPreservedAsJson` refuses.
 *
 * @throws {SyntaxError} for what is no JSON.
 */
export const parseJson = (text: string): unknown =>
  // Looking at every number takes many times as long, and most texts have none that could be lost.
  MAY_LOSE_DIGITS.test(text) ? JSON.parse(text, refuseLoss) : JSON.parse(text)

const MAY_LOSE_DIGITS = /[\d.]{16}|\d[eE]/
const NOT_STORABLE = '\0'

// The context is newer than its types: https://tc39.es/proposal-json-parse-with-source/
function refuseLoss(_key: string, value: unknown, context?: { readonly source?: string }): unknown {
  const isLost =
    typeof value === 'number' && decimalOf(context?.source ?? '') !== decimalOf(String(value))
  return isLost ? NOT_STORABLE : value
}

/** The same text for the same number, however it is written: `150`, `1.50e2`. */
function decimalOf(number: string): string {
  const parts = /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?$/i.exec(number)
  if (parts === null) return number
  const [, sign = '', whole = '', fraction = '', exponent = '0'] = parts
  const digits = (whole + fraction).replace(/^0+/, '')
  const significant = digits.replace(/0+$/, '')
  const place = Number(exponent) - fraction.length + digits.length - significant.length
  return significant === '' ? '0' : `${sign}${significant}e${place}`
}

/** How deep initial data may be nested; beyond a few thousand levels parsers run out of stack. */
export const MAX_DEPTH = 100

/** Whether a value is nested deeper than `limit`. Level by level: recursion is what it protects. */
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
