/** The lines of the requests that carry many of them, each as NDJSON and as an array. */
import type { Place } from '../doubling.ts'
import type { ServiceWithDoors } from './routes.ts'
import { requestText, sendRaw } from './send-raw.ts'

/** A line of a run may have 262,144 bytes, one of a grant 16 KiB; a whole body several megabytes. */
const LENGTHS = [15_000, 250_000, 2_000_000]
const FORMATS = [
  ['NDJSON', 'application/x-ndjson', (line: string) => `${line}\n`],
  ['an array', 'application/json', (line: string) => `[${line}]`],
] as const

const doors: Readonly<Record<string, { readonly path: string; readonly line: LineMaker }>> = {
  coordinator: {
    path: '/processes/OrderProcess/transactions/bulk',
    line: (text) => `{"TransactionID":"a","InitialData":${text}}`,
  },
  'token-service': {
    path: '/imports/grants',
    line: (text) => `{"Realm":"1","RefreshToken":${text}}`,
  },
}
type LineMaker = (text: string) => string

/** Returns the places of the lines that a service reads. */
export function placesOfLines({
  name,
  url,
  process,
  authorization,
}: ServiceWithDoors): readonly Place[] {
  const door = doors[name]
  if (door === undefined) return []
  const place = (
    what: string,
    type: string,
    syntax: Place['syntax'],
    make: (text: string) => string,
  ): Place => ({
    name: `${name}: POST ${door.path}: ${what}`,
    process,
    syntax,
    lengths: LENGTHS,
    send(text) {
      const body = make(text)
      const length = String(Buffer.byteLength(body))
      const headers = {
        Host: 'x',
        ...authorization,
        'Content-Type': type,
        'Content-Length': length,
      }
      return sendRaw(url, requestText(`POST ${door.path}`, headers, body))
    },
  })
  return FORMATS.flatMap(([format, type, body]) => [
    place(`a member of a line, as ${format}`, type, 'json', (text) => body(door.line(text))),
    place(`a line, as ${format}`, type, 'json', body),
    place(`lines, as ${format}`, type, 'text', (text) => text.replaceAll(/[a ]/g, '\n')),
  ])
}
