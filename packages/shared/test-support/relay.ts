import { once } from 'node:events'
import { createConnection, createServer, type Socket } from 'node:net'

/** A TCP line to a backend that a test can cut, silence and restore. */
export interface Relay extends AsyncDisposable {
  /** The backend's URL with the relay's address in it. */
  readonly url: string
  /** What becomes of the backend's answers on their way; null: nothing. */
  edit: ((answer: Buffer) => Buffer) | null
  /** Connections that came so far. */
  readonly connections: number
  /** Ends every connection and refuses new ones until `restore`. */
  away(): void
  /** Ends every connection; new ones are taken at once. */
  cut(): void
  /** Keeps connections and passes nothing on, either way, until `restore`. */
  stall(): void
  /** Open again. What was swallowed is lost, so stalled connections end. */
  restore(): void
}

export async function startRelay(backendUrl: string, defaultPort: number): Promise<Relay> {
  const target = new URL(backendUrl)
  const sockets = new Set<Socket>()
  let state: 'open' | 'away' | 'stalled' = 'open'
  let connections = 0
  const server = createServer((client) => {
    connections += 1
    if (state === 'away') {
      client.resetAndDestroy()
      return
    }
    const backend = createConnection({
      host: target.hostname,
      port: Number(target.port || defaultPort),
    })
    for (const socket of [client, backend]) {
      sockets.add(socket)
      socket.setNoDelay(true)
      socket.on('error', () => {})
      socket.on('close', () => {
        sockets.delete(socket)
        client.destroy()
        backend.destroy()
      })
    }
    client.on('data', (data) => state === 'stalled' || backend.write(data))
    backend.on('data', (data) => state === 'stalled' || client.write(relay.edit?.(data) ?? data))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = new URL(backendUrl)
  address.hostname = '127.0.0.1'
  address.port = String((server.address() as { port: number }).port)
  const cut = (): void => sockets.forEach((socket) => socket.destroy())
  const relay: Relay = {
    url: address.href,
    edit: null,
    get connections() {
      return connections
    },
    cut,
    away() {
      state = 'away'
      cut()
    },
    stall: () => void (state = 'stalled'),
    restore() {
      if (state === 'stalled') cut()
      state = 'open'
    },
    async [Symbol.asyncDispose]() {
      cut()
      server.close()
      await once(server, 'close')
    },
  }
  return relay
}

/** For `edit`: the bytes with a text in them replaced by one of the same length. */
export const edited = (
  answer: Buffer,
  text: RegExp,
  other: string | ((...parts: string[]) => string),
): Buffer => Buffer.from(answer.toString('latin1').replace(text, other as string), 'latin1')
