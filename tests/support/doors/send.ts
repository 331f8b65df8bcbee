/** Sends many requests over plain sockets, because each connection without a key is closed after its response. */
import { connect } from 'node:net'
import type { DoorRequest } from './doors.ts'

const CONCURRENCY = 16
const MAX_RESPONSE_BYTES = 32_768
const RESPONSE_DEADLINE_MS = 30_000

/**
 * Sends the requests, and resolves with the number of responses by status.
 *
 * @throws {Error} if a request gets no response
 */
export async function sendAll(
  url: string,
  requests: Iterable<DoorRequest>,
): Promise<ReadonlyMap<number, number>> {
  const statuses = new Map<number, number>()
  const { hostname, port } = new URL(url)
  const queue = requests[Symbol.iterator]()
  async function work(): Promise<void> {
    for (let next = queue.next(); next.done !== true; next = queue.next()) {
      const status = await send(hostname, Number(port), next.value)
      statuses.set(status, (statuses.get(status) ?? 0) + 1)
    }
  }
  await Promise.all(Array.from({ length: CONCURRENCY }, work))
  return statuses
}

/** Sends a request on a connection of its own, and resolves with the status of the response. */
function send(host: string, port: number, { method, path, headers, body }: DoorRequest) {
  const { promise, resolve, reject } = Promise.withResolvers<number>()
  const lines = Object.entries({ ...headers, Connection: 'close' }).map(
    ([name, value]) => `${name}: ${value}`,
  )
  const socket = connect(port, host, () => {
    socket.write(`${method} ${path} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n${body}`)
  })
  let head = ''
  socket.setTimeout(RESPONSE_DEADLINE_MS, () => socket.destroy())
  let length = 0
  socket.on('data', (bytes) => {
    if (head.length < 12) head += bytes.toString('latin1')
    length += bytes.length
    // The rest of a large file would only cost time.
    if (length > MAX_RESPONSE_BYTES) socket.destroy()
  })
  socket.on('error', () => undefined)
  socket.on('close', () => {
    const status = Number(head.slice(9, 12))
    if (status > 0) resolve(status)
    else reject(new Error(`${method} ${path.slice(0, 200)} got no response`))
  })
  return promise
}
