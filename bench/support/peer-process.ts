import { fileURLToPath } from 'node:url'
import {
  type StartedProcess,
  startProcess,
} from '@integration-host/shared/test-support/start-process'
import type { Redis } from 'ioredis'
import type { PeerSettings } from '../peers/serve-peer.ts'
import type { Custody } from './custody.ts'

const entries = {
  'bare-handler': new URL('../peers/bare-handler.ts', import.meta.url),
  'intuit-oauth': new URL('../peers/intuit-oauth.ts', import.meta.url),
  'openid-client': new URL('../peers/openid-client.ts', import.meta.url),
} as const

export interface PeerProcess extends StartedProcess {
  readonly url: string
}

/** Starts a peer of token-service in a separate process. Resolves when the peer listens. */
export const startPeer = (
  name: keyof typeof entries,
  settings: PeerSettings,
): Promise<PeerProcess> => startEntry(entries[name], settings)

/** Starts a program that reads `PEER_SETTINGS` and prints its address. Resolves when the program listens. */
export async function startEntry(entry: URL, settings: object): Promise<PeerProcess> {
  const started = startProcess([fileURLToPath(entry)], {
    env: { PEER_SETTINGS: JSON.stringify(settings) },
  })
  const [url] = await started.waitForOutput(/^http\S+$/m)
  return { ...started, url }
}

/**
 * Stores a grant of the realm for each compared OAuth library that refreshes tokens. Each grant has the format of its
 * library.
 */
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
