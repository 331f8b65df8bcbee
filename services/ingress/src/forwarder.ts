/**
 * Takes TCP connections at one port and passes each on to one of the replicas behind a name.
 *
 * It knows nothing of what is said: bytes go through as they come, in both directions, no faster than the slower side
 * takes them. An end of one direction is passed on as that, a connection that broke as a reset, so that a
 * download cut off never looks like one that is complete.
 */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { type Dependency, reasonOf } from '@integration-host/shared/observability/health'

export interface Endpoint {
  readonly host: string
  readonly port: number
}

export interface ForwarderOptions {
  readonly listen: Endpoint
  /** Asked anew for each connection, because replicas come and go. */
  readonly replicas: () => Promise<readonly Endpoint[]>
  /** Told whether any replica takes a connection. */
  readonly dependency: Dependency
  /** Milliseconds that open connections get at shutdown. */
  readonly drainMs?: number
}

export interface Forwarder extends AsyncDisposable {
  readonly url: string
}

/** One that is gone without a word must not hold up a client for the system's two minutes. */
const CONNECT_DEADLINE_MS = 2_000

/**
 * Forwards until disposed. A new connection goes to the replica that has the fewest; one that refuses is skipped,
 * and where none is left the client's connection is reset.
 *
 * @throws the system's error when the address cannot be bound.
 */
export async function startForwarder(options: ForwarderOptions): Promise<Forwarder> {
  const { listen, replicas, dependency, drainMs = 5_000 } = options
  const clients = new Set<Socket>()
  const connections = new Map<string, number>()
  let turn = 0

  async function reach(): Promise<Socket> {
    const found = await replicas()
    // Among equals each has its turn: a row of short connections must not all go to the first.
    const first = turn++ % found.length
    const candidates = [...found.slice(first), ...found.slice(0, first)].toSorted(
      (a, b) => countOf(a) - countOf(b),
    )
    let failure: unknown = new Error('no replica is known')
    for (const replica of candidates) {
      try {
        const upstream = await connectTo(replica)
        count(replica, 1)
        upstream.once('close', () => count(replica, -1))
        return upstream
      } catch (error) {
        failure = error
      }
    }
    throw failure
  }
  const countOf = (replica: Endpoint): number => connections.get(keyOf(replica)) ?? 0
  const count = (replica: Endpoint, change: 1 | -1): void => {
    const left = countOf(replica) + change
    if (left === 0) connections.delete(keyOf(replica))
    else connections.set(keyOf(replica), left)
  }

  async function forward(client: Socket): Promise<void> {
    // Whatever breaks closes the socket, and that is what `join` looks at.
    client.on('error', () => {})
    try {
      const upstream = await reach()
      dependency.up()
      join(client, upstream)
    } catch (error) {
      dependency.down(reasonOf(error))
      client.resetAndDestroy()
    }
  }

  const server = createServer(
    { allowHalfOpen: true, keepAlive: true, noDelay: true },
    (client: Socket) => {
      clients.add(client)
      client.once('close', () => clients.delete(client))
      void forward(client)
    },
  )
  // As many as one replica takes (`listen` in packages/shared).
  server.maxConnections = 4_096
  server.listen(listen.port, listen.host)
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    url: `tcp://${listen.host}:${port}`,
    async [Symbol.asyncDispose]() {
      const cut = setTimeout(() => clients.forEach((client) => client.destroy()), drainMs)
      const closed = once(server, 'close')
      server.close()
      await closed
      clearTimeout(cut)
    },
  }
}

const keyOf = ({ host, port }: Endpoint): string => `${host}:${port}`

/** @throws the system's error, or a TimeoutError. */
async function connectTo({ host, port }: Endpoint): Promise<Socket> {
  const socket = connect({ host, port, allowHalfOpen: true, keepAlive: true, noDelay: true })
  try {
    await once(socket, 'connect', { signal: AbortSignal.timeout(CONNECT_DEADLINE_MS) })
  } catch (error) {
    socket.destroy()
    throw error
  }
  socket.on('error', () => {})
  return socket
}

/** Makes one line of two connections, until both have ended in both directions or one of them broke. */
function join(client: Socket, upstream: Socket): void {
  for (const [from, to] of [
    [client, upstream],
    [upstream, client],
  ] as const) {
    // `pipe` passes an end on, and waits while the other side does not take more.
    from.pipe(to)
    from.once('close', (hadError: boolean) => {
      if (hadError) to.resetAndDestroy()
      else to.destroySoon()
    })
  }
  // It may have gone while the other one was being reached.
  if (client.destroyed) upstream.destroy()
}
