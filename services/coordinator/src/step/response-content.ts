/** Reads the content of a response: its text, and whether it is the JSON that a call has asked for. */
import { DOCUMENT_LIMITS, jsonExcess, parseJson, trimmedJson } from '@integration-host/shared/json'

/** A media type whose content is not text, whatever its bytes are. SVG is text. */
const BINARY = /^(?:image\/(?!svg)|audio\/|video\/|font\/|application\/(?:pdf|zip|gzip)\b)/i

const utf8 = new TextDecoder('utf-8', { fatal: true })

/**
 * Returns the text of a body; `null` if the body is not text: its media type is that of images and the like, it contains
 * U+0000, or its bytes are invalid in its charset and it is not JSON. The charset is that of the Content-Type, or else of
 * a byte order mark, or else UTF-8.
 */
export function textOf(body: Buffer, contentType: string | null): string | null {
  if (body.length === 0) return ''
  if (contentType !== null && BINARY.test(contentType.trimStart())) return null
  const named = /;\s*charset="?([^\s;"]+)/i.exec(contentType ?? '')?.[1]?.toLowerCase()
  const charset = named ?? charsetOfMark(body)
  try {
    const text = decoderOf(charset).decode(body)
    return text.includes('\0') ? null : text
  } catch {
    // JSON is text, although some bytes may be in another charset than its sender says.
    const text = body.toString('utf8')
    return mayBeJson(text) ? text : null
  }
}

function charsetOfMark(body: Buffer): string {
  if (body[0] === 0xff && body[1] === 0xfe) return 'utf-16le'
  return body[0] === 0xfe && body[1] === 0xff ? 'utf-16be' : 'utf-8'
}

/** Returns the decoder of a charset. A charset that is not known is read as UTF-8. */
function decoderOf(charset: string) {
  if (charset === 'utf-8') return utf8
  try {
    return new TextDecoder(charset, { fatal: true })
  } catch {
    return utf8
  }
}

/** Whether an `Accept` header accepts nothing but JSON. */
export const acceptsOnlyJson = (accept: string | undefined): boolean =>
  accept?.split(',', 100).every((range) => /json/i.test(range)) ?? false

/** Whether a text is JSON. A text that is too large to be parsed counts as JSON: no page has so many commas. */
const mayBeJson = (text: string): boolean =>
  parseJson(text, DOCUMENT_LIMITS) !== undefined || jsonExcess(text, DOCUMENT_LIMITS) !== null

/** The number of characters in which the beginning of an HTML page is looked for. */
const BEGINNING = 1_000

/**
 * Returns what a body is in place of JSON, such as `HTML`; `null` if it is empty, JSON, or of another media type. Pages of
 * maintenance and refusals of intermediaries are such bodies, and some have the media type of JSON or none. A body without
 * a media type is judged by its content alone: it is JSON, or it stands in place of JSON.
 */
export function inPlaceOfJson(body: string, contentType: string | null): string | null {
  const beginning = body.slice(0, BEGINNING).trimStart()
  if (trimmedJson(body) === '') return null
  if (PAGE.test(beginning)) return 'HTML'
  const type = contentType?.split(';', 1)[0]?.trim().toLowerCase() ?? ''
  // A body that begins like JSON but is incomplete is not a page.
  const isMislabelled = JSON_TYPE.test(type) && !/^[[{"]/.test(beginning)
  if (!(type === '' || TEXTS.has(type) || isMislabelled) || mayBeJson(body)) return null
  if (type === '') return 'text without a Content-Type'
  if (isMislabelled) return beginning.startsWith('<') ? 'HTML' : 'plain text'
  return type === 'text/html' ? 'HTML' : 'plain text'
}

/** Matches the beginning of a page: its document type, or its root element with what a page contains. */
const PAGE =
  /^(?:<\?xml[^>]{0,100}>\s{0,100})?<(?:!doctype\s{1,10}html\b|html\b[^>]{0,200}>\s{0,100}<(?:head|body|title)\b)/i

/** Matches the media types of JSON documents. The types of several documents, such as `application/x-ndjson`, differ. */
const JSON_TYPE = /^[^/]{1,100}\/(?:[^/]{1,100}\+)?json$/

/** The media types of HTML and plain text. */
const TEXTS: ReadonlySet<string> = new Set(['text/plain', 'text/html', 'application/xhtml+xml'])
