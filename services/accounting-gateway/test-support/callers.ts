/** Ways to call the gateway that change neither the request nor the response. */
import { once } from 'node:events'
import { type ClientRequest, type IncomingMessage, request as httpRequest } from 'node:http'
import { connect } from 'node:net'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { expect } from 'vitest'
import { KEY } from './fake-servers.ts'

/** The key as a header line of a raw request. */
export const AUTH = `Authorization: Bearer ${KEY}\r\n`
/** A company call for a realm that every fixture knows. */
export const PATH = '/v3/company/1/x'

/** Makes a call with Node's own client, which does not change the response. */
export function send(
  port: number,
  method: string,
  path: string,
  headers: Readonly<Record<string, string>> = {},
): { readonly request: ClientRequest; readonly answer: Promise<IncomingMessage> } {
  const authorization = `Bearer ${KEY}`
  const request = httpRequest({ port, path, method, headers: { authorization, ...headers } })
  const answer = once(request, 'response').then(([response]) => response as IncomingMessage)
  return { request, answer }
}

/** Resolves with the bytes written once that number no longer grows, because all buffers are full. */
export async function stalled(written: () => number): Promise<number> {
  let before = -1
  await eventually(
    () => {
      const now = written()
      const isStalled = now === before
      before = now
      expect(isStalled).toBe(true)
    },
    { everyMs: 500 },
  )
  return before
}

export interface RawResponse {
  readonly status: number
  readonly head: string
  readonly body: string
  readonly text: string
}

const TICK_MS = 50
const FIRST_BYTE_MS = 20_000

/**
 * Sends raw bytes, which ordinary clients would normalize. Reads until the peer closes, or has sent something and then
 * nothing for `quietMs`. That time is counted in ticks of a timer, so it does not pass while this process is blocked.
 */
export async function raw(port: number, bytes: string, quietMs = 300): Promise<RawResponse> {
  const socket = connect(port, '127.0.0.1')
  const parts: Buffer[] = []
  let ticks = 0
  socket.on('data', (part: Buffer) => {
    parts.push(part)
    ticks = 0
  })
  socket.on('error', () => {})
  const ticking = setInterval(() => {
    ticks += 1
    if (ticks * TICK_MS >= (parts.length === 0 ? FIRST_BYTE_MS : quietMs)) socket.destroy()
  }, TICK_MS)
  socket.write(bytes, 'latin1')
  await once(socket, 'close')
  clearInterval(ticking)
  const text = Buffer.concat(parts).toString('latin1')
  const [head = '', ...rest] = text.split('\r\n\r\n')
  return {
    status: Number(/^HTTP\/1\.[01] (\d{3})/.exec(text)?.[1] ?? 0),
    head,
    body: rest.join('\r\n\r\n'),
    text,
  }
}
