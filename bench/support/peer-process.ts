import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import type { Redis } from 'ioredis'
import type { PeerSettings } from '../peers/serve-peer.ts'
import type { Custody } from './custody.ts'

const entries = {
  'bare-handler': new URL('../peers/bare-handler.ts', import.meta.url),
  'intuit-oauth': new URL('../peers/intuit-oauth.ts', import.meta.url),
  'openid-client': new URL('../peers/openid-client.ts', import.meta.url),
} as const

export interface PeerProcess extends AsyncDisposable {
  readonly url: string
  readonly pid: number
}

/** Starts a peer of token-service in a process of its own; resolves when it listens. */
export const startPeer = (
  name: keyof typeof entries,
  settings: PeerSettings,
): Promise<PeerProcess> => startEntry(entries[name], settings)

/** Starts a program that reads `PEER_SETTINGS` and prints its address; resolves when it listens. */
export async function startEntry(entry: URL, settings: object): Promise<PeerProcess> {
  const child = spawn(process.execPath, [fileURLToPath(entry)], {
    env: { PATH: process.env['PATH'], PEER_SETTINGS: JSON.stringify(settings) },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const gone = once(child, 'exit')
  const address = once(createInterface(child.stdout), 'line') as Promise<[string]>
  const [url] = await Promise.race([
    address,
    gone.then(() => Promise.reject(new Error(`${entry.pathname} did not start`))),
  ])
  return {
    url,
    pid: child.pid ?? 0,
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL')
      await gone
    },
  }
}

/** Stores a grant of the realm for each peer that refreshes, in the peer's own format. */
export async function connectPeers(custody: Custody, redis: Redis, realm: string): Promise<void> {
  const { tokenEndpoint, clientId, clientSecret, redirectUri } = custody.client
  for (const peer of ['intuit-oauth', 'openid-client']) {
    const response = await fetch(tokenEndpoint, {
      method: 'POST',
      headers: {
        Authorization: `Basic ${Buffer.from(`${clientId}:${clientSecret}`).toString('base64')}`,
      },
      body: new URLSearchParams({
        grant_type: 'authorization_code',
        code: await custody.authorize(realm),
        redirect_uri: redirectUri,
      }),
    })
    const tokens = (await response.json()) as { expires_in: number }
    if (!response.ok) throw new Error(`${peer} was not connected: ${JSON.stringify(tokens)}`)
    const at = Date.now()
    const stored = { ...tokens, createdAt: at, expires_at: at + tokens.expires_in * 1_000 }
    await redis.set(`${peer}:ACC-${realm}`, JSON.stringify(stored))
  }
}
