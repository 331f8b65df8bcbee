/** Sends HTTP requests as raw bytes. */
import { once } from 'node:events'
import { connect } from 'node:net'

export interface RawResponse {
  readonly status: number
  readonly head: string
  readonly body: string
  readonly text: string
}

const TICK_MS = 50
const FIRST_BYTE_MS = 20_000

/**
 * Sends raw bytes, because ordinary clients would normalize the request. Reads until the peer closes the connection, or
 * until `quietMs` pass after the last bytes of a response. `quietMs` is measured in ticks of a timer, so that the time
 * does not pass while this process is blocked.
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
