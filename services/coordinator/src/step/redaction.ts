/**
 * Removes the secrets of a process from the data that its steps send, store and log. Steps cannot read a secret, but a
 * target can return a secret in a response, and a step can read the environment.
 */
import { OWN_TEXT, parseJson } from '@integration-host/shared/json'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Secret } from '@integration-host/shared/secrets/secret'
import type { Json } from '../run/json-normalization.ts'

/** The logger of a step. Secrets of the process are redacted in its lines. */
export type StepLog = Pick<Logger, 'debug' | 'info' | 'warn' | 'error'>

export interface Redaction {
  /** Returns the name of a secret that the text contains; `null` if the text contains none. */
  nameIn(text: string): string | null
  /** Returns the text with `[secret]` in place of each secret. */
  text(text: string): string
  /** Returns the body of a response. JSON stays JSON, and is unchanged outside the literals that contain a secret. */
  body(text: string): string
  /**
   * Returns the value with `[secret]` in place of each secret in its texts. A number that contains a secret is replaced
   * as a whole.
   */
  json(value: Json): Json
  /** Returns a logger that redacts its entries. */
  log(log: StepLog): StepLog
}

const REPLACEMENT = '[secret]'

/** Matches a string or a number in JSON text. The end of the text also ends a string, so that no search is repeated. */
const LITERAL = /"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?$)|-?\d[\d.eE+-]*/gs

/** Builds the redaction of these secrets. Returns `null` if there are no secrets. */
export function createRedaction(
  secrets: readonly (readonly [name: string, secret: Secret])[],
): Redaction | null {
  // The map contains each secret text only once, even if several settings have the same text, or if the whole auth
  // of a target is the value of a setting.
  const known = new Map(
    secrets.flatMap(([name, secret]) => {
      const value = secret.reveal()
      return value === '' ? [] : [[value, { name, ...patternsOf(value) }] as const]
    }),
  )
  if (known.size === 0) return null
  // The longest secret is replaced first, because one secret can contain another one.
  const searched = [...known].toSorted(([a], [b]) => b.length - a.length).map(([, one]) => one)
  const minLength = Math.min(...searched.map(({ shortest }) => shortest))

  const nameIn = (given: string): string | null =>
    searched.find(({ pattern }) => pattern.test(given))?.name ?? null
  const contains = (given: string): boolean => nameIn(given) !== null
  const text = (given: string): string =>
    searched.reduce((rest, { everywhere }) => rest.replace(everywhere, REPLACEMENT), given)
  // Each literal is searched separately, because replacing a match that extends over two literals would make the JSON
  // invalid. A string is decoded first, because JSON can write each of its characters in several ways.
  const jsonText = (given: string): string =>
    given.replace(LITERAL, (literal) => {
      if (!literal.startsWith('"'))
        return contains(literal) || contains(String(Number(literal)))
          ? JSON.stringify(REPLACEMENT)
          : literal
      if (literal.length < minLength) return literal // most literals are too short to contain a secret
      const decoded = JSON.parse(literal) as string
      return contains(decoded) ? JSON.stringify(text(decoded)) : literal
    })
  const json = (value: Json): Json => JSON.parse(jsonText(JSON.stringify(value))) as Json
  const logged = (value: unknown): unknown => {
    if (typeof value === 'string') return text(value)
    if (typeof value === 'number' || typeof value === 'bigint')
      return contains(String(value)) ? REPLACEMENT : value
    if (value instanceof Error) return redactedError(value)
    if (typeof value !== 'object' || value === null) return value
    return Object.fromEntries(
      Object.entries(value).map(([member, inner]) => [text(member), loggedMember(inner)]),
    )
  }
  const loggedMember = (value: unknown): unknown => {
    if (value instanceof Error) return redactedError(value)
    try {
      const written = JSON.stringify(value) as string | undefined
      return written === undefined ? undefined : JSON.parse(jsonText(written))
    } catch {
      return '[not JSON]' // a cycle, or a bigint
    }
  }
  // In JavaScript, the members of an error can have any value, such as a symbol.
  const errorText = (member: unknown): string => (typeof member === 'string' ? text(member) : '')
  const redactedError = (error: Error, depth = 0): Error => {
    const { cause } = error
    const hasCause = cause instanceof Error && depth < 3
    const copy = new Error(
      errorText(error.message),
      hasCause ? { cause: redactedError(cause, depth + 1) } : {},
    )
    copy.name = errorText(error.name)
    copy.stack = errorText(error.stack)
    return copy
  }
  return {
    nameIn,
    text,
    body: (given) => (parseJson(given, OWN_TEXT) === undefined ? text(given) : jsonText(given)),
    json,
    log: (log) => {
      const redacted =
        (level: keyof StepLog) =>
        (...given: readonly unknown[]): void =>
          log[level](...(given.map(logged) as [object, string]))
      return {
        debug: redacted('debug'),
        info: redacted('info'),
        warn: redacted('warn'),
        error: redacted('error'),
      }
    },
  }
}

/** Returns the patterns that find a secret in headers, URLs, forms, JSON, tokens and dumps. */
function patternsOf(value: string) {
  const bytes = Buffer.from(value, 'utf8')
  const hex = bytes.toString('hex')
  const encoded = [hex, ...[0, 1, 2].flatMap((offset) => base64At(bytes, offset))].filter(
    (form) => form !== '',
  )
  const source = [
    anyNotation(value),
    ...encoded.map((form) =>
      form === hex ? inAnyCase(hex) : form.replaceAll(/[+/=]/g, anyNotation),
    ),
  ].join('|')
  return {
    pattern: new RegExp(source),
    everywhere: new RegExp(source, 'g'),
    shortest: Math.min(value.length, ...encoded.map((form) => form.length)),
  }
}

/**
 * Returns the source of a pattern that finds a text in any encoding: each character may be written as in URLs, forms or
 * JSON.
 *
 * Each encoding may double the backslashes of the text, so a backslash is matched by one or more of them. Consecutive
 * backslashes are matched as a group, because a pattern with a choice for each of them would take exponential time.
 */
const anyNotation = (text: string): string =>
  text.replaceAll(/\\+|[^\\]/gu, (part) =>
    part.startsWith('\\')
      ? String.raw`(?:\\|%5[cC]|\\[uU]005[cC]){${part.length},${part.length * 4}}`
      : `(?:${notationsOf(part).join('|')})`,
  )

/** Returns regular expressions (as text) for the ways in which one character can be written. */
function notationsOf(character: string): readonly string[] {
  const literal = character.replace(/[$.*+?()[\]{}|^/]/, String.raw`\$&`)
  const percent = Buffer.from(character, 'utf8').toString('hex').replaceAll(/../g, '%$&')
  const unicode = character
    .split('')
    .map((unit) => String.raw`\\u` + unit.charCodeAt(0).toString(16).padStart(4, '0'))
    .join('')
  const short = SHORT_ESCAPES.get(character)
  return [
    literal,
    inAnyCase(percent),
    inAnyCase(unicode),
    ...(short === undefined ? [] : [String.raw`\\` + short]),
    ...(character === ' ' ? [String.raw`\+`] : []),
  ]
}

/**
 * Returns the source of a pattern that finds a text in upper and lower case. It does not use the modifier `(?i:…)`: in a
 * process that has compiled more than a megabyte of regular expressions, V8 13.6 matches a choice below that modifier only
 * as it is written.
 */
const inAnyCase = (source: string): string =>
  source.replaceAll(/[a-z]/gi, (letter) => `[${letter.toLowerCase()}${letter.toUpperCase()}]`)

/** The short escapes of RFC 8259 §7, except the escape of the backslash. */
const SHORT_ESCAPES: ReadonlyMap<string, string> = new Map([
  ['"', '"'],
  ['/', String.raw`\/`],
  ['\b', 'b'],
  ['\f', 'f'],
  ['\n', 'n'],
  ['\r', 'r'],
  ['\t', 't'],
])

/**
 * Returns the Base64 text of a secret that begins at this offset in a group of three bytes. The characters at its two
 * ends are omitted if they also encode neighbouring bytes.
 */
function base64At(bytes: Buffer, offset: number): readonly string[] {
  const shifted = Buffer.concat([Buffer.alloc(offset), bytes])
  const first = offset === 0 ? 0 : offset + 1
  const end = Math.floor((shifted.length * 8) / 6)
  return (['base64', 'base64url'] as const).map((encoding) =>
    shifted.toString(encoding).slice(first, end),
  )
}
