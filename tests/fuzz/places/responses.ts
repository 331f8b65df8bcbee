/** The responses of the accounting API to the gateway, and of a target to the coordinator. */
import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { queueOrder } from '../../support/faults/coordinators.ts'
import type { Place } from '../doubling.ts'
import { KEY, startGateways } from '../gateway.ts'
import { requestText, rows, sendRaw } from './send-raw.ts'

const HEAD_LENGTHS = [15_000, 60_000]
const REQUEST_HEAD_LENGTHS = [4_500, 15_000]
const BODY_LENGTHS = [60_000, 1_000_000]
/** A step may be delayed because calls before it have failed. */
const STEP_DEADLINE_MS = 1_000
const EMPTY = 'HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}'

type MakeResponse = (text: string) => string
const withHeader =
  (name: string, status = '400 Bad Request'): MakeResponse =>
  (text) =>
    `HTTP/1.1 ${status}\r\n${name}: ${text}\r\nContent-Length: 2\r\n\r\n{}`
const withBody =
  (status: string, type: string): MakeResponse =>
  (text) =>
    `HTTP/1.1 ${status}\r\nContent-Type: ${type}\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`

const heads: Readonly<Record<string, MakeResponse>> = {
  'a header': withHeader('X-Any'),
  'Content-Type': withHeader('Content-Type', '200 OK'),
  'Content-Encoding': withHeader('Content-Encoding', '200 OK'),
  Connection: withHeader('Connection'),
  'Retry-After': withHeader('Retry-After', '429 Too Many Requests'),
  'WWW-Authenticate': withHeader('WWW-Authenticate', '403 Forbidden'),
  'Set-Cookie': withHeader('Set-Cookie', '200 OK'),
  Location: withHeader('Location', '302 Found'),
  'Content-Length': withHeader('Content-Length'),
  'Transfer-Encoding': withHeader('Transfer-Encoding'),
  'the name of a header': (text) =>
    `HTTP/1.1 400 Bad Request\r\n${text}: a\r\nContent-Length: 2\r\n\r\n{}`,
  'rows of headers': (text) =>
    `HTTP/1.1 400 Bad Request\r\n${rows(text)}Content-Length: 2\r\n\r\n{}`,
  'the reason': (text) => `HTTP/1.1 400 ${text}\r\nContent-Length: 2\r\n\r\n{}`,
  'the status line': (text) => `${text}\r\nContent-Length: 2\r\n\r\n{}`,
  'the extension of a chunk': (text) =>
    `HTTP/1.1 400 Bad Request\r\nTransfer-Encoding: chunked\r\n\r\n2;${text}\r\n{}\r\n0\r\n\r\n`,
  'a trailer': (text) =>
    `HTTP/1.1 400 Bad Request\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Any: ${text}\r\n\r\n`,
}
const jsonBodies: Readonly<Record<string, MakeResponse>> = {
  'body of a 200': withBody('200 OK', 'application/json'),
  'body of a 400': withBody('400 Bad Request', 'application/json'),
}
const textBodies: Readonly<Record<string, MakeResponse>> = {
  'a body of text': withBody('400 Bad Request', 'text/plain'),
  'a page': withBody('403 Forbidden', 'text/html; charset=utf-8'),
}

/** Returns the places, and the places of raw request heads, which need the same gateways. */
export async function placesOfResponses(opened: AsyncDisposableStack): Promise<readonly Place[]> {
  const upstream = opened.use(await startUpstream())
  const gateways = opened.use(await startGateways(upstream.url))
  const { system } = gateways
  const coordinator = system.start('coordinator', {
    LOG_LEVEL: 'error',
    SERVICE_API_KEY: KEY,
    DEMO_API_URL: upstream.url,
    GATEWAY_URL: upstream.url,
  })
  await system.ready('coordinator')
  let count = 0

  const gatewayPlaces = gateways.all.flatMap((gateway, index): Place[] => {
    const name = `gateway ${index === 0 ? 'with' : 'without'} the fast path`
    const company = (): string => `/v3/company/r${(count += 1)}/invoice`
    const withKey = { Host: 'x', Authorization: `Bearer ${KEY}` }
    const requests: Readonly<Record<string, (text: string) => string>> = {
      'a header': (text) => requestText(`GET ${company()}`, { ...withKey, 'X-Any': text }),
      'a header, without a key': (text) =>
        requestText(`GET ${company()}`, { Host: 'x', 'X-Any': text }),
      'the name of a header': (text) =>
        requestText(`GET ${company()}`, { ...withKey, [text]: 'a' }),
      'rows of headers': (text) =>
        `GET ${company()} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${KEY}\r\nConnection: close\r\n${rows(text)}\r\n`,
      'the key': (text) => requestText(`GET ${company()}`, { Host: 'x', Authorization: text }),
      'the request line': (text) => `${text}\r\nHost: x\r\n\r\n`,
      'the version': (text) => `GET / HTTP/1.1${text}\r\nHost: x\r\n\r\n`,
      'the company': (text) =>
        requestText(`GET /v3/company/${encodeURIComponent(text)}/invoice`, withKey),
      'the path': (text) => requestText(`GET ${company()}/${text.replaceAll(/\s/g, '+')}`, withKey),
      'the query': (text) =>
        requestText(`GET ${company()}?query=${text.replaceAll(/\s/g, '+')}`, withKey),
      'the extension of a chunk': (text) =>
        `POST ${company()} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${KEY}\r\nConnection: close\r\n` +
        `Transfer-Encoding: chunked\r\n\r\n2;${text}\r\n{}\r\n0\r\nX-Any: ${text}\r\n\r\n`,
    }
    const batch = (text: string): string => {
      const body = `{"BatchItemRequest":[{"bId":"1","Query":${text}}]}`
      return requestText(
        `POST /v3/company/r${(count += 1)}/batch`,
        {
          ...withKey,
          'Content-Type': 'application/json',
          'Content-Length': String(Buffer.byteLength(body)),
        },
        body,
      )
    }
    return [
      ...Object.entries(requests).map(([what, make]): Place => ({
        name: `${name}: ${what}`,
        process: gateway,
        syntax: 'text',
        lengths: REQUEST_HEAD_LENGTHS,
        send(text) {
          void upstream.respondWith(EMPTY)
          return sendRaw(gateway.url, make(text))
        },
      })),
      {
        name: `${name}: a batch`,
        process: gateway,
        syntax: 'json',
        lengths: BODY_LENGTHS,
        send(text) {
          void upstream.respondWith(EMPTY)
          return sendRaw(gateway.url, batch(text))
        },
      },
      ...responsePlaces({
        name: `${name}: response with`,
        process: gateway,
        send(response) {
          void upstream.respondWith(response)
          // The gateway does not repeat a POST.
          return sendRaw(
            gateway.url,
            requestText(`POST ${company()}`, { ...withKey, 'Content-Length': '0' }),
          )
        },
      }),
    ]
  })
  const coordinatorPlaces = responsePlaces({
    name: 'coordinator: response of a target with',
    process: coordinator,
    async send(response) {
      const id = `order-${(count += 1)}`
      const sent = upstream.respondWith(response, id)
      const status = await queueOrder({ ...system, call: callWithKey }, coordinator.url, id)
      if (status !== 202) throw new Error(`an order was rejected with ${status}`)
      await Promise.race([sent, delay(STEP_DEADLINE_MS)])
    },
  })
  return [
    ...gatewayPlaces,
    // After a 429 the coordinator calls the target no more, so nothing could be measured.
    ...coordinatorPlaces
      .filter(({ name }) => !name.endsWith('Retry-After'))
      .map((place) => ({ ...place, isAsynchronous: true })),
  ]
}

const callWithKey = (url: string, init: RequestInit = {}): Promise<Response> =>
  fetch(url, {
    ...init,
    headers: { Authorization: `Bearer ${KEY}`, ...(init.headers as Record<string, string>) },
  })

function responsePlaces({
  name,
  process,
  send,
}: Pick<Place, 'name' | 'process'> & {
  readonly send: (response: string) => Promise<void>
}): readonly Place[] {
  const places = (
    makers: Readonly<Record<string, MakeResponse>>,
    syntax: Place['syntax'],
    lengths: readonly number[],
  ): Place[] =>
    Object.entries(makers).map(([what, make]) => ({
      name: `${name} ${what}`,
      process,
      syntax,
      lengths,
      send: (text) => send(make(text)),
    }))
  return [
    ...places(heads, 'text', HEAD_LENGTHS),
    ...places(jsonBodies, 'json', BODY_LENGTHS),
    ...places(textBodies, 'text', BODY_LENGTHS),
  ]
}

interface Upstream extends AsyncDisposable {
  readonly url: string
  /**
   * Sends these bytes for the next request whose head contains `marker`, and a rejection for each other one. Resolves
   * when they have been sent.
   */
  respondWith(response: string, marker?: string): Promise<void>
}

async function startUpstream(): Promise<Upstream> {
  const sockets = new Set<Socket>()
  let next: { response: string; marker: string; sent: () => void } | null = null
  const server = createServer((socket) => {
    sockets.add(socket)
    let received = ''
    socket.on('error', () => {})
    socket.on('close', () => sockets.delete(socket))
    socket.on('data', (data) => {
      received += data.toString('latin1')
      if (!received.includes('\r\n\r\n')) return
      const chosen = next !== null && received.includes(next.marker) ? next : null
      if (chosen !== null) next = null
      received = ''
      socket.end(chosen?.response ?? EMPTY, () => chosen?.sent())
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    respondWith(response, marker = '') {
      const { promise, resolve } = Promise.withResolvers<void>()
      next = { response, marker, sent: resolve }
      return promise
    },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy()
      server.close()
      await once(server, 'close')
    },
  }
}
