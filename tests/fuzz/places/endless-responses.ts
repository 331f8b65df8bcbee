/** Event streams and lines, as the client, the console and the CLI read them: in many small pieces. */
import { connect } from 'node:net'
import { setImmediate } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { listeningUrl, startProcess } from '@integration-host/shared/test-support/start-process'
import type { Place } from '../doubling.ts'

const LENGTHS = [60_000, 240_000]
const PIECE_CHARACTERS = 200

/** Starts a process with the readers, and returns its places. */
export async function placesOfEndlessResponses(
  opened: AsyncDisposableStack,
): Promise<readonly Place[]> {
  const process = opened.use(startProcess([fileURLToPath(new URL('readers.ts', import.meta.url))]))
  const url = await listeningUrl(process)
  const place = (
    name: string,
    path: string,
    syntax: Place['syntax'],
    make: (text: string) => string,
  ): Place => ({
    name: `reader: ${name}`,
    process,
    syntax,
    lengths: LENGTHS,
    send: (text) => sendInPieces(url, path, make(text)),
  })
  return [
    place('an event', '/events', 'json', (text) => `data: ${text}\n\n`),
    place('an event stream', '/events', 'text', (text) => text),
    place('the lines of an event', '/events', 'text', (text) => `${dataLines(text)}\n`),
    place('a line', '/lines', 'json', (text) => `${text}\n`),
    place('lines', '/lines', 'text', (text) => `${text}\n`),
  ]
}

/** Returns the text as lines of one event, eight characters a line. */
const dataLines = (text: string): string =>
  (text.match(/.{1,8}/gs) ?? []).map((part) => `data: ${part}\n`).join('')

/** Sends a request whose body arrives in small pieces. Resolves when the process has read it. */
async function sendInPieces(url: string, path: string, body: string): Promise<void> {
  const { hostname, port } = new URL(url)
  const { promise, resolve } = Promise.withResolvers<void>()
  const socket = connect({ host: hostname, port: Number(port), noDelay: true })
  socket.on('error', () => {})
  socket.on('close', () => resolve())
  socket.on('data', () => socket.destroy())
  socket.write(
    `POST ${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n`,
  )
  for (let at = 0; at < body.length && !socket.destroyed; at += PIECE_CHARACTERS) {
    const piece = body.slice(at, at + PIECE_CHARACTERS)
    socket.write(`${Buffer.byteLength(piece).toString(16)}\r\n${piece}\r\n`)
    if (at % 8_000 === 0) await setImmediate()
  }
  socket.write('0\r\n\r\n')
  await promise
}
