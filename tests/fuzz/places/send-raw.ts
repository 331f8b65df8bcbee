import { connect } from 'node:net'

const QUIET_MS = 200

/**
 * Sends bytes on a connection of its own. Resolves when the server has responded or has closed the connection. A server
 * that sends nothing for a while may wait for the rest of the request, so this side ends the connection then.
 */
export function sendRaw(url: string, bytes: string | Buffer): Promise<void> {
  const { hostname, port } = new URL(url)
  const { promise, resolve } = Promise.withResolvers<void>()
  const socket = connect(Number(port), hostname, () => socket.write(bytes))
  let head = ''
  socket.setTimeout(QUIET_MS, () => {
    if (socket.writableEnded) socket.destroy()
    else socket.end()
  })
  socket.on('data', (data) => {
    if (head.length < 4_096) head += data.toString('latin1')
    // An event stream has no end.
    if (/^content-type: *text\/event-stream/im.test(head)) socket.destroy()
  })
  // A server may reset a connection before it has read all bytes.
  socket.on('error', () => {})
  socket.on('close', () => resolve())
  return promise
}

/** Returns the text of a request. Headers of the value `null` are left out. */
export function requestText(
  line: string,
  headers: Readonly<Record<string, string | null>>,
  body = '',
): string {
  const lines = Object.entries({ Connection: 'close', ...headers })
    .filter(([, value]) => value !== null)
    .map(([name, value]) => `${name}: ${value}`)
  return `${line} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n${body}`
}

/** Returns the text as the rows of a head, eight characters a row. */
export const rows = (text: string): string =>
  (text.match(/.{1,8}/gs) ?? []).map((part, index) => `x-${index}: ${part}\r\n`).join('')
