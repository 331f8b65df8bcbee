import { once } from 'node:events'
import { createConnection, createServer, type Socket } from 'node:net'

/** A TCP proxy to a backend. A test can cut, stall and restore the connections of the proxy. */
export interface Relay extends AsyncDisposable {
  /** The backend's URL, with the relay's address in place of the backend's address. */
  readonly url: string
  /** Changes the replies of the backend before they are forwarded; `null` forwards them unchanged. */
  edit: ((reply: Buffer) => Buffer) | null
  /** The number of connections accepted so far. */
  readonly connections: number
  /**
   * Makes the backend unavailable until `restore`: closes every connection, and resets each new connection. With `end`,
   * each new connection is accepted and then closed without a reset.
   */
  away(how?: 'reset' | 'end'): void
  /**
   * Closes every connection, and continues to accept new connections. With `reset`, the client receives an RST. With
   * `half`, only the connections to the client are closed, and the backend does not notice.
   */
  cut(how?: 'end' | 'reset' | 'half'): void
  /** Stops forwarding on existing connections. New connections are forwarded. */
  silence(): void
  /** Keeps connections open, but forwards nothing in either direction until `restore`. */
  stall(): void
  /** Forwards new connections to another backend. Existing connections keep their backend. */
  redirect(backendUrl: string): void
  /** Forwards again. Bytes that arrived in the meantime were discarded, so the affected connections are closed. */
  restore(): void
}

export async function startRelay(backendUrl: string, defaultPort: number): Promise<Relay> {
  let target = new URL(backendUrl)
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
    redirect: (otherUrl) => void (target = new URL(otherUrl)),
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

/**
 * Returns a function for {@link Relay.edit} that replaces a text in a reply. In a length-prefixed protocol, the
 * replacement must have the same length.
 */
export const edited = (
  reply: Buffer,
  text: RegExp,
  other: string | ((...parts: string[]) => string),
): Buffer => Buffer.from(reply.toString('latin1').replace(text, other as string), 'latin1')
