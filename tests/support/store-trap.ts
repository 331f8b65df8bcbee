import { once } from 'node:events'
import { createConnection, createServer, type AddressInfo, type Socket } from 'node:net'
import type { Relay } from '@integration-host/shared/test-support/relay'

/** The writes of a refresh, in their order, and how many keys the script of each has; the credential's is the first. */
const scriptKeys = { acquire: 3, intent: 2, commit: 6 } as const
export type StoreWrite = keyof typeof scriptKeys

export interface StoreTrap extends AsyncDisposable {
  readonly url: string
  /**
   * Lets the relay's line fail at the next such write for the credential at `key`. `request`: Redis never sees
   * it. `answer`: Redis does it, and nobody is told.
   */
  set(write: StoreWrite, key: string, lost: 'request' | 'answer'): void
  hasCaught(): boolean
  /** Nothing is swallowed any more, and the relay is open again. */
  restore(): void
}

/** A line to Redis through `relay` that stalls in the middle of one write. */
export async function startStoreTrap(relay: Relay): Promise<StoreTrap> {
  const target = new URL(relay.url)
  const sockets = new Set<Socket>()
  let trap: { readonly sign: string; readonly lost: 'request' | 'answer' } | null = null
  let isDeaf = false
  const server = createServer((client) => {
    const line = createConnection({ host: target.hostname, port: Number(target.port) })
    for (const socket of [client, line]) {
      sockets.add(socket)
      socket.setNoDelay(true)
      socket.on('error', () => {})
      socket.on('close', () => {
        sockets.delete(socket)
        client.destroy()
        line.destroy()
      })
    }
    client.on('data', (data) => {
      if (trap !== null && data.includes(trap.sign)) {
        if (trap.lost === 'request') relay.stall()
        else isDeaf = true
        trap = null
      }
      line.write(data)
    })
    line.on('data', (data) => isDeaf || client.write(data))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = new URL(relay.url)
  url.port = String((server.address() as AddressInfo).port)
  return {
    url: url.href,
    set(write, key, lost) {
      const bulk = (text: string): string => `\r\n$${text.length}\r\n${text}\r\n`
      trap = { sign: bulk(String(scriptKeys[write])) + bulk(key).slice(2), lost }
    },
    hasCaught: () => trap === null,
    restore() {
      isDeaf = false
      relay.restore()
    },
    async [Symbol.asyncDispose]() {
      sockets.forEach((socket) => socket.destroy())
      server.close()
      await once(server, 'close')
    },
  }
}
