/**
 * Reads the parts of an upload as Intuit does, which is more lenient than RFC 7578: lines may end in a bare LF, empty
 * lines may precede the first part, and a file may have no `filename` and be in base64. python-quickbooks sends all of
 * this. Web parsers (`Request.formData`) reject it.
 */
import { asObject, parseJsonObject } from '@integration-host/shared/json'
import type { Body } from './posted-entities.ts'

export interface UploadPart {
  readonly name: string
  /** `null` if the part has no `filename`. */
  readonly fileName: string | null
  readonly type: string
  readonly bytes: Buffer
}

const MAX_PARTS = 100
const MAX_HEAD_BYTES = 8_192
const LF = 0x0a
const CR = 0x0d

/** Returns the parts of a multipart body; `null` if the body is not multipart, or is truncated. */
export function uploadParts(contentType: string, body: Buffer): readonly UploadPart[] | null {
  const found =
    /^multipart\/form-data\b[^]{0,200}?;\s{0,9}boundary=(?:"([^"]{1,200})"|([^\s;"]{1,200}))/i
  const [, quoted, plain] = found.exec(contentType.slice(0, 500)) ?? []
  const boundary = quoted ?? plain
  if (boundary === undefined) return null
  const delimiter = Buffer.from(`--${boundary}`)
  const parts: UploadPart[] = []
  let start: number | null = null
  for (let at = nextDelimiter(body, delimiter, 0); at !== -1;) {
    if (start !== null) {
      const part = partOf(body.subarray(start, contentEnd(body, start, at)))
      if (part === null || parts.length === MAX_PARTS) return null
      parts.push(part)
    }
    const after = at + delimiter.length
    if (body.toString('latin1', after, after + 2) === '--') return parts
    start = body.indexOf(LF, after) + 1
    if (start === 0) return null
    at = nextDelimiter(body, delimiter, start)
  }
  return null
}

/** Returns the position of the next delimiter that begins a line; -1 if there is none. */
function nextDelimiter(body: Buffer, delimiter: Buffer, from: number): number {
  let at = body.indexOf(delimiter, from)
  while (at > 0 && body[at - 1] !== LF) at = body.indexOf(delimiter, at + 1)
  return at
}

/** Returns the end of a part without the line end that belongs to the delimiter at `at`. */
function contentEnd(body: Buffer, start: number, at: number): number {
  const end = body[at - 2] === CR ? at - 2 : at - 1
  return Math.max(start, end)
}

function partOf(part: Buffer): UploadPart | null {
  const head = part.subarray(0, MAX_HEAD_BYTES).toString('utf8')
  const [separator] = /\r?\n\r?\n/.exec(head) ?? []
  if (separator === undefined) return null
  const headText = head.slice(0, head.indexOf(separator))
  const headers = new Map(
    headText.split('\n').map((line) => {
      const colon = line.indexOf(':')
      return [line.slice(0, colon).trim().toLowerCase(), line.slice(colon + 1).trim()] as const
    }),
  )
  const disposition = headers.get('content-disposition') ?? ''
  const name = parameter(disposition, 'name')
  if (name === null) return null
  const content = part.subarray(Buffer.byteLength(headText + separator))
  const isBase64 = headers.get('content-transfer-encoding')?.toLowerCase() === 'base64'
  return {
    name,
    fileName: parameter(disposition, 'filename'),
    type: headers.get('content-type') ?? '',
    bytes: isBase64 ? Buffer.from(content.toString('latin1'), 'base64') : content,
  }
}

/** Returns a parameter of `Content-Disposition`; `null` if it is missing. Browsers escape `"` and line ends in names. */
function parameter(disposition: string, name: 'name' | 'filename'): string | null {
  const found = new RegExp(`;\\s{0,9}${name}=(?:"([^"]{0,1000})"|([^\\s;"]{1,1000}))`, 'i')
  const [, quoted, plain] = found.exec(disposition) ?? []
  const value = quoted ?? plain
  return value === undefined
    ? null
    : value.replaceAll('%22', '"').replaceAll('%0D', '\r').replaceAll('%0A', '\n')
}

/** Returns the metadata of a file from a part in JSON or in XML, as Intuit's PHP SDK sends it; `null` if it is neither. */
export function metadataOf(text: string): Body | null {
  const trimmed = text.trim()
  if (!trimmed.startsWith('<')) return parseJsonObject(trimmed)
  if (!/<(?:\w{1,20}:)?Attachable[\s>]/.test(trimmed)) return null
  const texts = ['FileName', 'Note', 'Category', 'Tag', 'PlaceName', 'Lat', 'Long'].flatMap(
    (name) => {
      const found = new RegExp(`<(?:\\w{1,20}:)?${name}>([^<]{0,4000})<`).exec(trimmed)
      return found === null ? [] : [[name, unescaped(found[1] ?? '')]]
    },
  )
  const refs = [...trimmed.matchAll(/<(?:\w{1,20}:)?EntityRef type="(\w{1,40})">([^<]{1,40})</g)]
  return asObject({
    ...Object.fromEntries(texts),
    ...(refs.length > 0 && {
      AttachableRef: refs.map(([, type, value]) => ({ EntityRef: { type, value } })),
    }),
  })
}

const ENTITIES: Readonly<Record<string, string>> = {
  amp: '&',
  lt: '<',
  gt: '>',
  quot: '"',
  apos: "'",
}
const unescaped = (text: string): string =>
  text.replaceAll(/&(amp|lt|gt|quot|apos);/g, (_, name: string) => ENTITIES[name] ?? '')
