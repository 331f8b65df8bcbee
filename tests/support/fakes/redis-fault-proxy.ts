import { once } from 'node:events'
import { createConnection, createServer, type AddressInfo, type Socket } from 'node:net'
import type { Relay } from '@integration-host/shared/test-support/relay'

/**
 * The writes of a refresh in their order, with the number of keys of each Lua script. The proxy recognizes a write in
 * the byte stream by its command EVALSHA, the number of keys, and the first key, which is the name of the credential.
 */
const scriptKeys = { acquire: 4, intent: 3, commit: 7 } as const
export type StoreWrite = keyof typeof scriptKeys

export interface RedisFaultProxy extends AsyncDisposable {
  readonly url: string
  /**
   * Stalls the connection at the next write of this kind for the credential at `key`. With `request`, the command
   * does not reach Redis. With `reply`, Redis executes the command, but its reply is dropped.
   */
  failNext(write: StoreWrite, key: string, lost: 'request' | 'reply'): void
  hasFailed(): boolean
  /** Ends the fault: the proxy forwards replies again, and the relay accepts connections again. */
  restore(): void
}

/** Starts a proxy that forwards connections to Redis and can stall a connection in the middle of one write. */
export async function startRedisFaultProxy(relay: Relay): Promise<RedisFaultProxy> {
  const target = new URL(relay.url)
  const sockets = new Set<Socket>()
  let fault: { readonly command: string; readonly lost: 'request' | 'reply' } | null = null
  let dropsReplies = false
  const server = createServer((client) => {
    const upstream = createConnection({ host: target.hostname, port: Number(target.port) })
    for (const socket of [client, upstream]) {
      sockets.add(socket)
      socket.setNoDelay(true)
      socket.on('error', () => {})
      socket.on('close', () => {
        sockets.delete(socket)
        client.destroy()
        upstream.destroy()
      })
    }
    client.on('data', (data) => {
      if (fault !== null && data.includes(fault.command)) {
        if (fault.lost === 'request') relay.stall()
        else dropsReplies = true
        fault = null
      }
      upstream.write(data)
    })
    upstream.on('data', (data) => dropsReplies || client.write(data))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = new URL(relay.url)
  url.port = String((server.address() as AddressInfo).port)
  return {
    url: url.href,
    failNext(write, key, lost) {
      const bulk = (text: string): string => `\r\n$${text.length}\r\n${text}\r\n`
      fault = { command: bulk(String(scriptKeys[write])) + bulk(key).slice(2), lost }
    },
    hasFailed: () => fault === null,
    restore() {
      dropsReplies = false
      relay.restore()
    },
    async [Symbol.asyncDispose]() {
      sockets.forEach((socket) => socket.destroy())
      server.close()
      await once(server, 'close')
    },
  }
}
