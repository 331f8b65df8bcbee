/**
 * Makes the response of another system presentable: redacts secrets in it, even if they are escaped. The text is decoded
 * and searched as plain text.
 *
 * A regular expression for all escaped spellings of a secret would be too slow, because its time is proportional to the
 * length of the text multiplied by the length of the secret. For an echoed code of 2,048 `&` it took 7 s, and the
 * process could not serve any other request during this time.
 */

const REDACTED = '[redacted]'

const BODY_LIMIT = 1_000

/**
 * Returns the response body of a token endpoint in a form that may be stored and shown: truncated, and with all current
 * and former tokens redacted. `secrets` are the code, tokens and client secret of the request, which the response may
 * echo. An ordinary error body is returned unchanged.
 */
export function presentableBody(body: string, secrets: readonly string[]): string {
  let shown = redactSecrets(body, secrets)
  for (const secret of secrets.filter((text) => text !== '')) {
    const bytes = Buffer.from(secret)
    const forms = [
      bytes.toString('base64').replace(/={1,2}$/, ''),
      bytes.toString('base64url'),
      bytes.toString('hex'),
    ]
    for (const form of new Set(forms)) shown = shown.replaceAll(form, REDACTED)
  }
  shown = shown
    // Redacts the members of a token response in JSON, a form or XML, even if the response is truncated within a
    // member.
    .replace(new RegExp(`((?:${MEMBERS})\\\\?"\\s*:\\s*\\\\?")[^"\\\\]*`, 'gi'), `$1${REDACTED}`)
    .replace(new RegExp(`((?:${MEMBERS})=)[^&\\s"<]+`, 'gi'), `$1${REDACTED}`)
    .replace(new RegExp(`(<(?:${MEMBERS})[^<>]*>)[^<]*`, 'gi'), `$1${REDACTED}`)
    // Redacts the credentials of an echoed request, and all JSON web tokens.
    .replace(/\b(Basic|Bearer)\s+[\w+/=.~%-]{16,}/gi, `$1 ${REDACTED}`)
    .replace(/eyJ[\w-]{8,}(?:\.[\w-]*){0,4}/g, REDACTED)
    // Any other text of at least 40 characters could be a token, under any name and in any encoding. UUIDs are shorter,
    // so they are not redacted.
    .replace(/(?<![\w~+-])[\w~+-]{40,}/g, REDACTED)
  return shown.length > BODY_LIMIT ? `${shown.slice(0, BODY_LIMIT)}…` : shown
}

const MEMBERS = 'access_?token|refresh_?token|id_?token|client_?secret'

/** A part of a text, from `start` up to but not including `end`. */
interface Span {
  readonly start: number
  readonly end: number
}

interface DecodedText {
  readonly text: string
  /** For each character of `text`, its offset in the original text. The last element is the offset of the end. */
  readonly offsets: readonly number[]
  /** The number of decoding rounds. */
  readonly rounds: number
}

/**
 * Matches the escapes of JSON, of forms and URLs, and of HTML and XML. Each alternative has a bounded length, so that a
 * search for the next escape needs linear time.
 */
const ESCAPE =
  /\\u([0-9a-f]{4})|%([0-9a-f]{2})|&#x0{0,8}([0-9a-f]{1,4});|&#0{0,8}(\d{1,5});|&(amp|lt|gt|quot|apos);|\\([^\w\s])/gi

const NAMED: Readonly<Record<string, string>> = {
  amp: '&',
  lt: '<',
  gt: '>',
  quot: '"',
  apos: "'",
}

/**
 * The maximum number of decoding rounds. A text can be escaped several times, for example JSON within a form, but
 * hardly more often than this.
 */
const MAX_ROUNDS = 4

/** Decodes the escapes of a text repeatedly, until no escapes are left or `MAX_ROUNDS` rounds are done. */
export function decode(original: string): DecodedText {
  let text = original
  let offsets = Array.from({ length: original.length + 1 }, (_, index) => index)
  let rounds = 0
  while (rounds < MAX_ROUNDS) {
    const decoded = decodeOnce(text, offsets)
    if (decoded.text === text) break
    ;({ text, offsets } = decoded)
    rounds += 1
  }
  return { text, offsets, rounds }
}

function decodeOnce(text: string, offsets: readonly number[]): { text: string; offsets: number[] } {
  const parts: string[] = []
  const decodedOffsets: number[] = []
  let from = 0
  const copyUntil = (end: number): void => {
    parts.push(text.slice(from, end))
    for (let index = from; index < end; index += 1) decodedOffsets.push(offsets[index] ?? 0)
  }
  for (const match of text.matchAll(ESCAPE)) {
    const [escape, json, percent, hex, decimal, name, backslashed] = match
    const codeText = json ?? percent ?? hex
    const character =
      backslashed ??
      (name === undefined
        ? String.fromCharCode(
            codeText === undefined ? Number(decimal) : Number.parseInt(codeText, 16),
          )
        : (NAMED[name.toLowerCase()] ?? ''))
    copyUntil(match.index)
    parts.push(character)
    decodedOffsets.push(offsets[match.index] ?? 0)
    from = match.index + escape.length
  }
  copyUntil(text.length)
  decodedOffsets.push(offsets[text.length] ?? 0)
  return { text: parts.join(''), offsets: decodedOffsets }
}

/**
 * A response may contain a truncated secret. A part of a text is therefore redacted if it equals at least this many
 * characters from the beginning of a secret.
 */
const PREFIX_LENGTH = 32

/** Returns the parts of a text that contain a secret, or at least its first 32 characters. The parts do not overlap. */
export function spansOf(text: string, secret: string): Span[] {
  const spans: Span[] = []
  const prefix = secret.slice(0, PREFIX_LENGTH)
  for (let start = text.indexOf(prefix); start !== -1;) {
    let length = prefix.length
    while (length < secret.length && text[start + length] === secret[length]) length += 1
    spans.push({ start, end: start + length })
    start = text.indexOf(prefix, start + length)
  }
  return spans
}

/** Returns the text with each secret replaced by `[redacted]`, whether the secret is escaped or not. */
export function redactSecrets(text: string, secrets: readonly string[]): string {
  const wanted = secrets.filter((secret) => secret !== '').flatMap(spellingsOf)
  if (wanted.length === 0) return text
  const decoded = decode(text)
  const offsetOf = (index: number): number => decoded.offsets[index] ?? text.length
  const spans = wanted.flatMap((secret) => [
    ...spansOf(text, secret),
    // The secret is decoded as well, because it may contain text that looks like an escape.
    ...spansOf(decoded.text, decode(secret).text).map(({ start, end }) => ({
      start: offsetOf(start),
      end: offsetOf(end),
    })),
  ])
  return replaceSpans(text, spans)
}

/**
 * Returns the two forms in which a secret is searched: the secret itself, and a text with one character for each UTF-8
 * byte of the secret. Decoding `%C3%BC` gives the second form. The two forms are equal for an ASCII secret.
 */
const spellingsOf = (secret: string): string[] => [
  ...new Set([secret, Buffer.from(secret, 'utf8').toString('latin1')]),
]

function replaceSpans(text: string, spans: readonly Span[]): string {
  const parts: string[] = []
  let from = 0
  for (const { start, end } of spans.toSorted((a, b) => a.start - b.start)) {
    if (end <= from) continue
    // A span that overlaps the previous span is merged with it, so that `[redacted]` is added only once.
    if (start >= from) parts.push(text.slice(from, start), REDACTED)
    from = end
  }
  parts.push(text.slice(from))
  return parts.join('')
}
