import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import type { Target } from '../fuzz.ts'
import { control, KEY, startGateways } from '../gateway.ts'
import { exchange } from '../raw-http.ts'

/** How long the fake accounting API keeps a connection open after sending a mutated response. */
const OPEN_MS = 150

const inputs = [
  'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n{"Invoice":1}',
  'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n',
  'HTTP/1.1 204 No Content\r\nConnection: keep-alive\r\n\r\n',
  'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}',
  'HTTP/1.1 400 Bad Request\r\nContent-Encoding: identity\r\nContent-Length: 5\r\n\r\nfault',
  'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end of the connection',
  'HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n',
].map((input) => Buffer.from(input))

/**
 * Sends mutated responses of the accounting API to two gateways, one with and one without the fast path. The caller
 * must get one well-formed response. A valid request that follows must get its own response, even if the gateway
 * reuses the connection on which the accounting API has sent a mutated response.
 */
export async function gatewayResponses(): Promise<Target> {
  await using opened = new AsyncDisposableStack()
  let response: Uint8Array = Buffer.alloc(0)
  const sockets = new Set<Socket>()
  const upstream = createServer((socket) => {
    sockets.add(socket)
    let received = ''
    socket.on('error', () => {})
    socket.on('close', () => sockets.delete(socket))
    socket.on('data', (data) => {
      received += data.toString('latin1')
      const end = received.indexOf('\r\n\r\n')
      if (end === -1) return
      const marker = /^GET \/v3\/company\/control\/(\w+) /.exec(received)?.[1]
      received = ''
      if (marker !== undefined) {
        const body = `control ${marker}`
        return void socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
      }
      socket.write(response)
      setTimeout(() => socket.end(), OPEN_MS)
    })
  })
  opened.defer(async () => {
    for (const socket of sockets) socket.destroy()
    upstream.close()
    await once(upstream, 'close')
  })
  upstream.listen(0, '127.0.0.1')
  await once(upstream, 'listening')
  const { port } = upstream.address() as AddressInfo
  const gateways = opened.use(await startGateways(`http://127.0.0.1:${port}`))
  let count = 0

  const running = opened.move()
  return {
    inputs,
    processes: gateways.all,
    async check(input) {
      response = input
      // Each input uses another company, because the gateway delays further calls of a company after a 429.
      const realm = `r${(count += 1)}`
      // The gateway does not repeat a POST, so the accounting API sends each input once.
      const request = Buffer.from(
        `POST /v3/company/${realm}/invoice HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${KEY}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`,
      )
      for (const gateway of gateways.all) {
        const responses = await exchange(gateway.port, request, {
          quietMs: 10_000,
          mayBeCut: true,
        })
        const final = responses.filter(({ status }) => status >= 200)
        if (final.length > 1) throw new Error(`one request got ${final.length} responses`)
        await control(gateway.url, `m${count}`)
      }
    },
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  }
}
