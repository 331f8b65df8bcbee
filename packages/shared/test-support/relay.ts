import { once } from 'node:events'
import { createConnection, createServer, type Socket } from 'node:net'

/** A TCP proxy to a backend, whose connections a test can cut, stall and restore. */
export interface Relay extends AsyncDisposable {
  /** The backend's URL with the relay's address in it. */
  readonly url: string
  /** Changes the backend's replies on their way; `null` leaves them as they are. */
  edit: ((reply: Buffer) => Buffer) | null
  /** Connections accepted so far. */
  readonly connections: number
  /** Closes every connection and resets new ones until `restore`; with `end`, new ones are accepted and then closed. */
  away(how?: 'reset' | 'end'): void
  /**
   * Closes every connection, with `reset` by an RST to the client; new ones are accepted. With `half` only the client's
   * side is closed, so that the backend does not notice.
   */
  cut(how?: 'end' | 'reset' | 'half'): void
  /** Forwards nothing more on existing connections; new ones work. */
  silence(): void
  /** Keeps connections open and forwards nothing in either direction until `restore`. */
  stall(): void
  /** Forwards again. Discarded bytes are lost, so stalled connections are closed. */
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

/** Replaces a text in a reply, for {@link Relay.edit}. In a length-prefixed protocol the replacement needs the same length. */
export const edited = (
  reply: Buffer,
  text: RegExp,
  other: string | ((...parts: string[]) => string),
): Buffer => Buffer.from(reply.toString('latin1').replace(text, other as string), 'latin1')
