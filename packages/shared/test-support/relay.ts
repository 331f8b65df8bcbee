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
  /** Ends every connection and refuses new ones until `restore`; `end` takes them, and ends them at once. */
  away(how?: 'reset' | 'end'): void
  /**
   * Ends every connection, `reset` by an RST to whoever came; new ones are taken at once. `half`: the backend sees
   * nothing of it.
   */
  cut(how?: 'end' | 'reset' | 'half'): void
  /** Passes nothing more on over the connections there are; new ones work. */
  silence(): void
  /** Keeps connections and passes nothing on, either way, until `restore`. */
  stall(): void
  /** Open again. What was swallowed is lost, so stalled connections end. */
  restore(): void
}

export async function startRelay(backendUrl: string, defaultPort: number): Promise<Relay> {
  const target = new URL(backendUrl)
  const sockets = new Set<Socket>()
  const clients = new Set<Socket>()
  const silent = new Set<Socket>()
  let isHalf = false
  let state: 'open' | 'reset' | 'end' | 'stalled' = 'open'
  let connections = 0
  const server = createServer((client) => {
    connections += 1
    if (state === 'reset' || state === 'end') {
      client.on('error', () => {})
      if (state === 'reset') client.resetAndDestroy()
      else client.end().resume()
      return
    }
    clients.add(client)
    const backend = createConnection({
      host: target.hostname,
      port: Number(target.port || defaultPort),
    })
    for (const socket of [client, backend]) {
      sockets.add(socket)
      socket.setNoDelay(true)
      socket.on('error', () => {})
      socket.on('close', () => {
        for (const all of [sockets, clients, silent]) all.delete(socket)
        if (isHalf) return
        client.destroy()
        backend.destroy()
      })
    }
    const isSilent = (): boolean => state === 'stalled' || silent.has(client)
    client.on('data', (data) => isSilent() || backend.write(data))
    backend.on('data', (data) => isSilent() || client.write(relay.edit?.(data) ?? data))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = new URL(backendUrl)
  address.hostname = '127.0.0.1'
  address.port = String((server.address() as { port: number }).port)
  const cut = (how: 'end' | 'reset' | 'half' = 'end'): void => {
    isHalf = how === 'half'
    if (how !== 'end') for (const client of clients) client.resetAndDestroy()
    if (!isHalf) for (const socket of sockets) socket.destroy()
  }
  const relay: Relay = {
    url: address.href,
    edit: null,
    get connections() {
      return connections
    },
    cut,
    away(how = 'reset') {
      state = how
      cut()
    },
    silence() {
      for (const client of clients) silent.add(client)
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

/** For `edit`: the bytes with a text in them replaced; by one of the same length, where the protocol tells lengths. */
export const edited = (
  answer: Buffer,
  text: RegExp,
  other: string | ((...parts: string[]) => string),
): Buffer => Buffer.from(answer.toString('latin1').replace(text, other as string), 'latin1')
