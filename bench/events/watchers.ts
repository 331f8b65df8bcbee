/**
 * A process that keeps connections to `/events` open: `node watchers.ts <url> <key> <count> <read|idle>`. When
 * every connection has received its response headers, the process prints `open <n>`, where `n` is the number of
 * accepted connections. Idle connections read nothing after the headers.
 */
import { once } from 'node:events'
import { connect } from 'node:net'

const [url = '', key = '', count = '0', mode] = process.argv.slice(2)
const { hostname, port } = new URL(url)

async function open(): Promise<boolean> {
  const socket = connect(Number(port), hostname)
  socket.on('error', () => {}) // the server resets connections that are not read
  socket.write(`GET /events HTTP/1.1\r\nHost: ${hostname}\r\nAuthorization: Bearer ${key}\r\n\r\n`)
  const [head] = (await once(socket, 'data')) as [Buffer]
  if (mode === 'read') socket.resume()
  else socket.pause()
  return head.toString().startsWith('HTTP/1.1 200')
}

const accepted = await Promise.all(Array.from({ length: Number(count) }, open))
console.log(`open ${accepted.filter(Boolean).length}`)
