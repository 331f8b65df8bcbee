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
export const storableText = (text: string): string => text.toWellFormed().replaceAll('\0', '\uFFFD')

// In the output of JSON.stringify a NUL and a lone surrogate appear as escapes after an even number of backslashes.
const UNSTORABLE = /(?<=(?<!\\)(?:\\\\)*)\\u(?:0000|d[89a-f][0-9a-f]{2})/g

/** A value as JSON that every source can keep; what JSON has no form for (`undefined`, functions) is null. */
export function storableJson(value: unknown): Json {
  const text = JSON.stringify(value) as string | undefined
  return text === undefined ? null : (JSON.parse(text.replaceAll(UNSTORABLE, '\\ufffd')) as Json)
}

/** Whether a value would be kept exactly as it is. What callers queue is refused rather than changed. */
export const isStorable = (value: unknown): boolean =>
  (JSON.stringify(value) ?? '').search(UNSTORABLE) === -1

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
