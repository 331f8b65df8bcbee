import type { z } from 'zod'

/**
 * Parses text from another process. Returns `undefined`, which is not a JSON value, if the text is not JSON. Nothing
 * is thrown, because malformed text from another process is expected.
 */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/**
 * Parses text as JSON and validates it with a schema. Returns `null` if the text is not JSON or does not match the
 * schema.
 */
export function parseJsonAs<Schema extends z.ZodType>(
  schema: Schema,
  text: string,
): z.output<Schema> | null {
  const parsed = schema.safeParse(parseJson(text))
  return parsed.success ? parsed.data : null
}

/** Parses text as a JSON object. Returns `null` if the text is not JSON or contains another kind of value. */
export function parseJsonObject(text: string): Readonly<Record<string, unknown>> | null {
  return asObject(parseJson(text))
}

/**
 * The maximum number of members and elements in JSON that a client sends as one value. Parsing and checking take time
 * for each of them, even if each has only two bytes.
 */
const MAX_JSON_ENTRIES = 25_000

/**
 * Returns the sentence that names the limit if JSON text has more than `max` members and elements; `null` otherwise. The
 * text is not parsed. Commas and objects are counted. A further element needs a comma; nested arrays without one cost a
 * tenth, so ten times as many are permitted.
 */
export function tooManyEntries(text: string, max = MAX_JSON_ENTRIES): string | null {
  if (text.length <= max) return null // each entry takes at least one character
  let entries = 0
  let arrays = 0
  for (let at = nextMark(text, 0); at < text.length; at = nextMark(text, at + 1)) {
    const mark = text[at]
    if (mark === ',' || mark === '{') entries += 1
    else if (mark === '[') arrays += 1
    if (entries > max || arrays > 10 * max)
      return `JSON may have at most ${max} members and elements`
  }
  return null
}

/**
 * Splits the text of a JSON array into the texts of its elements, which are not parsed. If the text as a whole is not an
 * array, the last text is empty, and so not JSON.
 */
export function* arrayElements(text: string): Generator<string> {
  let from = text.search(/[^ \t\r\n]/) + 1
  if (text[from - 1] !== '[') {
    yield ''
    return
  }
  let depth = 1
  let isFirst = true
  for (let at = nextMark(text, from); at < text.length; at = nextMark(text, at + 1)) {
    const mark = text[at]
    if (mark === '[' || mark === '{') depth += 1
    else if (mark !== ',') depth -= 1
    if (depth > 1 || (depth === 1 && mark !== ',')) continue
    const element = text.slice(from, at)
    if (depth === 1 || !isFirst || !isBlank(element)) yield element
    if (depth === 1) {
      isFirst = false
      from = at + 1
      continue
    }
    if (mark !== ']' || !isBlank(text.slice(at + 1))) yield ''
    return
  }
  yield ''
}

const isBlank = (text: string): boolean => !/[^ \t\r\n]/.test(text)

/** Returns the position of the next comma or bracket outside of strings; the length of the text if there is none. */
function nextMark(text: string, from: number): number {
  let isInString = false
  for (let at = from; at < text.length; at += 1) {
    switch (text.charCodeAt(at)) {
      case 0x22: // "
        isInString = !isInString
        break
      case 0x5c: // backslash
        at += 1
        break
      case 0x2c: // comma
      case 0x5b: // [
      case 0x5d: // ]
      case 0x7b: // {
      case 0x7d: // }
        if (!isInString) return at
        break
      default:
    }
  }
  return text.length
}

/** Returns `value` typed as an object if it is a JSON object; `null` for arrays, primitives and `null`. */
export const asObject = (value: unknown): Readonly<Record<string, unknown>> | null =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Readonly<Record<string, unknown>>)
    : null
