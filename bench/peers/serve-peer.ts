import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Redis } from 'ioredis'

/**
 * The settings that a benchmark passes to a peer, as an environment variable. A peer is a program that is compared with
 * token-service.
 */
export interface PeerSettings {
  readonly redisUrl: string
  readonly tokenEndpoint: string
  readonly clientId: string
  readonly clientSecret: string
  readonly redirectUri: string
}

export interface Peer {
  /** Handles `GET /credentials/{name}/token`. */
  token(name: string): Promise<object>
  /** Handles `POST /credentials/{name}/refresh`. */
  refresh(name: string): Promise<object>
}

/**
 * Serves a peer on the same paths as token-service, with node:http alone: without authentication, validation, log
 * lines or metrics. Prints the server's address as the only line on standard output.
 */
export function servePeer(createPeer: (settings: PeerSettings, redis: Redis) => Peer): void {
  const settings = JSON.parse(process.env['PEER_SETTINGS'] ?? '') as PeerSettings
  const peer = createPeer(settings, new Redis(settings.redisUrl))
  const server = createServer((request, response) => {
    const [, , name = '', call] = (request.url ?? '').split('/')
    request.resume()
    ;(call === 'token' ? peer.token(name) : peer.refresh(name)).then(
      (body) => send(response, 200, JSON.stringify(body)),
      (error: unknown) => send(response, 500, String(error)),
    )
  })
  server.listen(0, '127.0.0.1', () => {
    console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
  })
}

function send(response: ServerResponse, status: number, body: string): void {
  response.writeHead(status, {
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(body),
  })
  response.end(body)
}
