/**
 * Parses and limits JSON. `parseJson` is the only parser of text that another program or person has chosen: it checks
 * the number of members and elements, the depth and the length of numbers before it parses, because parsing takes time
 * for each of them, even if each has only two bytes. A string costs no more than its bytes, and each reader limits the
 * bytes of a text before. `tests/json-parsing.test.ts` lists the other places that parse JSON.
 */
import type { z } from 'zod'

/** What a JSON text may contain. */
export interface JsonLimits {
  /** The number of commas, arrays and objects. Each further member or element needs a comma. */
  readonly entries: number
  /** The number of arrays and objects that contain each other. */
  readonly depth: number
  /** The number of characters of a number. */
  readonly numberCharacters: number
}

/** The limits of a request or a message. The longest notation of a double without superfluous zeros has 343 characters. */
export const JSON_LIMITS: JsonLimits = { entries: 25_000, depth: 1_000, numberCharacters: 400 }

/** The limits of a response of a provider or of a step's target: a page of objects has several hundred thousand members. */
export const DOCUMENT_LIMITS: JsonLimits = { ...JSON_LIMITS, entries: 500_000 }

/** The limits of a response of a service of the installation, which contains the data of several requests and responses. */
export const SERVICE_LIMITS: JsonLimits = { ...JSON_LIMITS, entries: 10_000_000, depth: 10_000 }

/** Stands for the absence of limits: the product or its operator has written the text. */
export const OWN_TEXT = null

/**
 * Parses text from another process. Returns `undefined`, which is not a JSON value, if the text is not JSON or exceeds
 * the limits. Nothing is thrown, because malformed text from another process is expected.
 */
export function parseJson(text: string, limits: JsonLimits | null = JSON_LIMITS): unknown {
  if (limits !== null && jsonExcess(text, limits) !== null) return undefined
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/**
 * Parses text as JSON and validates it with a schema. Returns `null` if the text is not JSON, exceeds the limits or does
 * not match the schema.
 */
export function parseJsonAs<Schema extends z.ZodType>(
  schema: Schema,
  text: string,
  limits: JsonLimits | null = JSON_LIMITS,
): z.output<Schema> | null {
  const parsed = schema.safeParse(parseJson(text, limits))
  return parsed.success ? parsed.data : null
}

/**
 * Parses the content of a message as JSON and validates it with a schema. Returns `null` if the message is too large, is
 * not JSON, exceeds the limits or does not match the schema.
 */
export const parseMessageAs = <Schema extends z.ZodType>(
  schema: Schema,
  // A Buffer. The browser program of the console is checked without the types of Node.
  content: { readonly length: number; toString(encoding: 'utf8'): string },
): z.output<Schema> | null =>
  content.length > MAX_MESSAGE_BYTES ? null : parseJsonAs(schema, content.toString('utf8'))

/** The largest messages among the services, with the transitions of a thousand runs, have less than a tenth of it. */
const MAX_MESSAGE_BYTES = 4 * 1_048_576

/** Parses text as a JSON object. Returns `null` for other text, as {@link parseJson} does, and for another kind of value. */
export function parseJsonObject(
  text: string,
  limits: JsonLimits | null = JSON_LIMITS,
): Readonly<Record<string, unknown>> | null {
  return asObject(parseJson(text, limits))
}

/**
 * Returns the sentence that names the first limit that a JSON text exceeds; `null` if it exceeds none. The text is read
 * once from its beginning and is not parsed, so it may also be no JSON.
 */
export function jsonExcess(text: string, limits: JsonLimits = JSON_LIMITS): string | null {
  const { entries: maxEntries, depth: maxDepth, numberCharacters } = limits
  if (text.length <= Math.min(maxEntries, maxDepth, numberCharacters)) return null
  let entries = 0
  let depth = 0
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at)
    if (code === QUOTE) at = endOfString(text, at)
    else if (code === CLOSED_ARRAY || code === CLOSED_OBJECT) depth -= 1
    else if (code === COMMA || code === OPEN_ARRAY || code === OPEN_OBJECT) {
      entries += 1
      if (entries > maxEntries) return `JSON may have at most ${maxEntries} members and elements`
      if (code !== COMMA) depth += 1
      if (depth > maxDepth) return `JSON may be nested at most ${maxDepth} levels deep`
    } else if (isDigit(code)) {
      const from = at
      while (isInNumber(text.charCodeAt(at + 1))) at += 1
      if (at - from >= numberCharacters)
        return `a number in JSON may have at most ${numberCharacters} characters`
    }
  }
  return null
}

const QUOTE = 0x22
const COMMA = 0x2c
const BACKSLASH = 0x5c
const OPEN_ARRAY = 0x5b
const CLOSED_ARRAY = 0x5d
const OPEN_OBJECT = 0x7b
const CLOSED_OBJECT = 0x7d

const isDigit = (code: number): boolean => code >= 0x30 && code <= 0x39
const isInNumber = (code: number): boolean =>
  isDigit(code) ||
  code === 0x2e || // .
  code === 0x2b || // +
  code === 0x2d || // -
  code === 0x45 || // E
  code === 0x65 // e

/** Returns the position of the quote that ends the string that begins at `from`; the length of the text if none does. */
function endOfString(text: string, from: number): number {
  // Quotes are searched, because comparing each character takes many times longer.
  for (let at = text.indexOf('"', from + 1); at !== -1; at = text.indexOf('"', at + 1)) {
    let backslashes = 0
    while (text.charCodeAt(at - 1 - backslashes) === BACKSLASH) backslashes += 1
    if (backslashes % 2 === 0) return at
  }
  return text.length
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

const SPACE = ' \t\r\n'
const isBlank = (text: string): boolean => !/[^ \t\r\n]/.test(text)

/**
 * Returns the text without the white space of JSON (RFC 8259 §2) at its ends. `trim` must not be used for this: it also
 * removes other characters, such as U+00A0, with which a text is not JSON.
 */
export function trimmedJson(text: string): string {
  let from = 0
  let to = text.length
  while (from < to && SPACE.includes(text.charAt(from))) from += 1
  while (from < to && SPACE.includes(text.charAt(to - 1))) to -= 1
  return text.slice(from, to)
}

/** Returns the position of the next comma or bracket outside of strings; the length of the text if there is none. */
function nextMark(text: string, from: number): number {
  for (let at = from; at < text.length; at += 1) {
    switch (text.charCodeAt(at)) {
      case QUOTE:
        at = endOfString(text, at)
        break
      case COMMA:
      case OPEN_ARRAY:
      case CLOSED_ARRAY:
      case OPEN_OBJECT:
      case CLOSED_OBJECT:
        return at
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
