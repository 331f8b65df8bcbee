import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'

/** A forward proxy on the loopback interface that supports CONNECT only. */
export interface TestForwardProxy extends AsyncDisposable {
  /** `host:port` of the proxy. */
  readonly address: string
  /** The CONNECT requests so far: host and port, and the header `Proxy-Authorization`. */
  readonly requests: { readonly to: string; readonly authorization: string | null }[]
  /** Sent in response to CONNECT in place of opening a tunnel; `null` opens tunnels. An empty text sends nothing. */
  reply: string | null
}

export interface TestForwardProxyOptions {
  /** The loopback port for each `host:port` that a client may connect to. All others are refused with 403. */
  readonly routes: Readonly<Record<string, number>>
  /** Certificate and private key, if the proxy itself is reached by TLS. */
  readonly tls?: { readonly cert: Buffer; readonly key: Buffer }
}

export async function startForwardProxy({
  routes,
  tls,
}: TestForwardProxyOptions): Promise<TestForwardProxy> {
  const sockets = new Set<Socket>()
  const track = (socket: Socket): Socket => {
    sockets.add(socket)
    return socket.on('error', () => {}).on('close', () => sockets.delete(socket))
  }
  const serve = (client: Socket): void => {
    let head = ''
    const onData = (chunk: Buffer): void => {
      head += chunk.toString('latin1')
      if (!head.includes('\r\n\r\n')) return
      client.off('data', onData)
      const [, to = ''] = /^CONNECT (\S+) HTTP\/1\.1\r\n/.exec(head) ?? []
      const [, authorization = null] = /\r\nProxy-Authorization: (.+)\r\n/.exec(head) ?? []
      proxy.requests.push({ to, authorization })
      if (proxy.reply !== null) return void client.write(proxy.reply, 'latin1')
      const port = routes[to]
      if (port === undefined) return void client.end('HTTP/1.1 403 Forbidden\r\n\r\n')
      const origin = track(connect(port, '127.0.0.1'))
      origin.once('connect', () => {
        client.write('HTTP/1.1 200 Connection established\r\n\r\n')
        client.pipe(origin).pipe(client)
      })
      origin.once('close', () => client.destroy())
      client.once('close', () => origin.destroy())
    }
    track(client).on('data', onData)
  }
  const server = tls === undefined ? createServer(serve) : createTlsServer(tls, serve)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const proxy: TestForwardProxy = {
    address: `127.0.0.1:${(server.address() as { port: number }).port}`,
    requests: [],
    reply: null,
    async [Symbol.asyncDispose]() {
      server.close()
      for (const socket of sockets) socket.destroy()
      await once(server, 'close')
    },
  }
  return proxy
}
