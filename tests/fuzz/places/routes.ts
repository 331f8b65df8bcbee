import type { Place } from '../doubling.ts'
import type { Door, DoorRequest } from '../../support/doors/doors.ts'
import { requestText, sendRaw } from './send-raw.ts'

export interface ServiceWithDoors {
  readonly name: string
  readonly url: string
  readonly process: Place['process']
  readonly doors: readonly Door[]
  /** The headers that authorize a request. */
  readonly authorization: Readonly<Record<string, string>>
  /** Returns headers that depend on the body, such as its signature. */
  readonly headersFor?: (body: string) => Readonly<Record<string, string>>
}

/** A request whose values are as documented and known. */
const VALID = 40
/** A head may have 16 KiB. An encoded character needs three bytes. */
const HEAD_LENGTHS = [4_500, 15_000]
/** The limits of the services for bodies are 16 KiB, 64 KiB and from 1 MiB on. */
const BODY_LENGTHS = [15_000, 60_000, 1_000_000]

/** Headers that each service reads, or gives to middleware that reads them. */
const commonHeaders = [
  'Accept',
  'Accept-Encoding',
  'Accept-Language',
  'Baggage',
  'Connection',
  'Content-Encoding',
  'Content-Length',
  'Expect',
  'Forwarded',
  'Host',
  'Idempotency-Key',
  'If-None-Match',
  'Last-Event-ID',
  'Origin',
  'Prefer',
  'Range',
  'Traceparent',
  'Tracestate',
  'Transfer-Encoding',
  'Upgrade',
  'X-Forwarded-For',
  'X-Forwarded-Proto',
  'X-Request-Id',
]
const headersOfEachDoor = ['Authorization', 'Cookie', 'Content-Type']

const inQuery = (text: string): string =>
  text.replaceAll(/[\s#&\u0080-\uffff]/g, encodeURIComponent)
const inPath = (text: string): string =>
  text.replaceAll(/[\s#/?\u0080-\uffff]/g, encodeURIComponent)

/** Returns the places of all routes of a service. */
export function placesOfRoutes(service: ServiceWithDoors): readonly Place[] {
  const { doors } = service
  // Which door reads a common header makes no difference, except that some are read only with a key.
  const withCommon = [doors.find((door) => !door.needsKey), doors.find((door) => door.needsKey)]
  return [
    ...doors.flatMap((door) => placesOf(service, door, withCommon.includes(door))),
    {
      ...headPlace(service, 'an unknown path'),
      send: (text) => sendRaw(service.url, requestText(`GET /${inQuery(text)}`, { Host: 'x' })),
    },
    {
      ...headPlace(service, 'a method'),
      send: (text) => sendRaw(service.url, requestText(`${text} /`, { Host: 'x' })),
    },
    {
      ...headPlace(service, 'the name of a header'),
      send: (text) => sendRaw(service.url, requestText('GET /', { Host: 'x', [text]: 'a' })),
    },
  ]
}

const headPlace = (service: ServiceWithDoors, name: string): Omit<Place, 'send'> => ({
  name: `${service.name}: ${name}`,
  process: service.process,
  syntax: 'text',
  lengths: HEAD_LENGTHS,
})

function placesOf(
  service: ServiceWithDoors,
  door: Door,
  hasCommonHeaders: boolean,
): readonly Place[] {
  const valid = door.request(VALID)
  const name = `${service.name}: ${door.method} ${door.path}`
  const send = (changed: Partial<DoorRequest>): Promise<void> => {
    const { method, path, body, headers } = { ...valid, ...changed }
    return sendRaw(
      service.url,
      requestText(
        `${method} ${path}`,
        {
          ...valid.headers,
          // A response to an earlier request with this key would be repeated.
          'Idempotency-Key': null,
          ...service.authorization,
          ...(door.method !== 'GET' && { 'Content-Length': String(Buffer.byteLength(body)) }),
          ...service.headersFor?.(body),
          ...(changed.headers !== undefined && headers),
        },
        body,
      ),
    )
  }
  const place = (
    what: string,
    syntax: Place['syntax'],
    lengths: readonly number[],
    changed: (text: string) => Partial<DoorRequest>,
  ): Place => ({
    name: `${name}: ${what}`,
    process: service.process,
    syntax,
    lengths,
    send: (text) => send(changed(text)),
  })

  const parameters = door.parameters.map(({ name: parameter, in: part }): Place => {
    if (part === 'header')
      return place(`header ${parameter}`, 'text', HEAD_LENGTHS, (text) => ({
        headers: { [parameter]: text },
      }))
    if (part === 'path')
      return place(`path ${parameter}`, 'text', HEAD_LENGTHS, (text) => ({
        path: pathWith(valid.path, door.path, parameter, inPath(text)),
      }))
    return place(`query ${parameter}`, 'text', HEAD_LENGTHS, (text) => {
      const [path = '', query] = valid.path.split('?')
      const others = new URLSearchParams(query)
      others.delete(parameter)
      return { path: `${path}?${others.toString()}&${parameter}=${inQuery(text)}` }
    })
  })
  const headers = [...headersOfEachDoor, ...(hasCommonHeaders ? commonHeaders : [])].map((header) =>
    place(`header ${header}`, 'text', HEAD_LENGTHS, (text) => ({ headers: { [header]: text } })),
  )
  return [
    ...parameters,
    ...headers,
    place('a parameter that is not documented', 'text', HEAD_LENGTHS, (text) => ({
      path: `${valid.path.split('?')[0]}?${inQuery(text)}`,
    })),
    ...(door.method === 'GET' ? [] : bodies(valid, place)),
  ]
}

/** Returns a path in which the segment of a parameter is replaced. */
function pathWith(path: string, template: string, parameter: string, value: string): string {
  const segments = (path.split('?')[0] ?? '').split('/')
  return template
    .split('/')
    .map((segment, index) =>
      segment.includes(`{${parameter}}`)
        ? segment.replace(`{${parameter}}`, () => value)
        : segments[index],
    )
    .join('/')
}

const MARKER = '\uf8ff'

function bodies(
  valid: DoorRequest,
  place: (
    what: string,
    syntax: Place['syntax'],
    lengths: readonly number[],
    changed: (text: string) => Partial<DoorRequest>,
  ) => Place,
): readonly Place[] {
  if (!(valid.headers['Content-Type'] ?? '').includes('json'))
    return [place('body', 'text', BODY_LENGTHS, (body) => ({ body }))]
  let value: unknown = {}
  try {
    value = JSON.parse(valid.body)
  } catch {
    // The door has no body in its document. It may read one all the same.
  }
  const members = markedMembers(value).map(([what, marked]) => {
    const [before = '', after = ''] = JSON.stringify(marked).split(JSON.stringify(MARKER))
    return place(`member ${what}`, 'json', BODY_LENGTHS, (text) => ({
      body: before + text + after,
    }))
  })
  return [
    ...members,
    place('a member that is not documented', 'json', BODY_LENGTHS, (text) => ({
      body: `{"unknown":${text},${JSON.stringify(value).slice(1)}`,
    })),
    place('body', 'json', BODY_LENGTHS, (body) => ({ body })),
  ]
}

/** Returns copies of a value, in each of which another member has the marker in place of its value. */
function markedMembers(value: unknown): readonly (readonly [string, unknown])[] {
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([key, inner]) => {
    const withInner = (changed: unknown): unknown =>
      Array.isArray(value) ? value.with(Number(key), changed) : { ...value, [key]: changed }
    return [
      [key, withInner(MARKER)] as const,
      ...markedMembers(inner).map(
        ([name, changed]) => [`${key}.${name}`, withInner(changed)] as const,
      ),
    ]
  })
}
