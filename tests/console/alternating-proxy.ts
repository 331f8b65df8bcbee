/** A load balancer without sticky sessions, in front of the replicas of the console. */
import { request as sendRequest, type IncomingMessage, type ServerResponse } from 'node:http'
import { buffer } from 'node:stream/consumers'
import { startHttpServer } from '../support/fakes/http-server.ts'

export interface ForwardedRequest {
  readonly method: string
  readonly path: string
  /** The index of the replica that has responded. */
  readonly replica: number
}

export interface AlternatingProxy extends AsyncDisposable {
  readonly url: string
  readonly forwarded: readonly ForwardedRequest[]
  /** The indexes of the replicas that send the open event streams, in the order in which the streams were opened. */
  readonly streams: readonly number[]
  /** Ends the connections of all open event streams. */
  cutStreams(): void
  /** Sends the next action to this replica. */
  directNextAction(replica: number): void
}

/**
 * Starts a proxy that sends event streams, actions and all other requests to the replicas in turn, each of these three
 * kinds by itself. If a replica does not accept the connection, the next one gets the request.
 */
export async function startAlternatingProxy(
  replicaUrls: () => readonly string[],
): Promise<AlternatingProxy> {
  const turns = new Map<string, number>()
  const forwarded: ForwardedRequest[] = []
  const streams = new Map<ServerResponse, number>()

  async function handle(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const { method = '', url: path = '' } = incoming
    const body = await buffer(incoming)
    const isStream = path.startsWith('/api/stream')
    const kind = isStream ? 'stream' : method === 'GET' ? 'read' : 'action'
    const replicas = replicaUrls()
    const turn = turns.get(kind) ?? 0
    turns.set(kind, turn + 1)
    for (let attempt = 0; attempt < replicas.length; attempt += 1) {
      const replica = (turn + attempt) % replicas.length
      const response = await send(replicas[replica] ?? '', incoming, body)
      if (response === 'refused') continue
      forwarded.push({ method, path, replica })
      if (isStream) {
        streams.set(outgoing, replica)
        outgoing.on('close', () => streams.delete(outgoing))
      }
      outgoing.writeHead(response.statusCode ?? 502, response.headers)
      outgoing.flushHeaders()
      response.on('error', () => outgoing.destroy())
      outgoing.on('close', () => response.destroy())
      response.pipe(outgoing)
      return
    }
    outgoing.destroy()
  }

  const server = await startHttpServer(handle)
  return {
    url: server.url,
    forwarded,
    get streams() {
      return [...streams.values()]
    },
    cutStreams() {
      for (const stream of streams.keys()) stream.destroy()
    },
    directNextAction: (replica) => void turns.set('action', replica),
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  }
}

/**
 * Sends a request to a replica. Returns `refused` if the replica does not accept the connection.
 *
 * @throws {Error} the replica has accepted the connection and sends no response. It may have executed an action, so the
 * request must not be sent to another replica.
 */
const send = (
  replicaUrl: string,
  { method, url, headers }: IncomingMessage,
  body: Buffer,
): Promise<IncomingMessage | 'refused'> =>
  new Promise((resolve, reject) => {
    const request = sendRequest(new URL(url ?? '', replicaUrl), { method, headers, agent: false })
    request.on('response', resolve)
    request.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ECONNREFUSED') resolve('refused')
      else reject(error)
    })
    request.end(body)
  })
