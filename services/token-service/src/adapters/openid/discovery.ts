/**
 * The provider's discovery document and signing keys: fetched in the background, kept when a later fetch
 * fails. The address is taken as configured; providers publish it at other paths than OpenID Connect
 * Discovery §4 has, so openid-client's own discovery would not find it.
 */
import type { ServerMetadata } from 'openid-client'
import { z } from 'zod'
import { type Dependency, reasonOf } from '@integration-host/shared/health'
import { exchangeHttp, NoAnswer } from './http-exchange.ts'

const endpoint = z.url({ protocol: /^https?$/ })

const Metadata = z.looseObject({
  issuer: endpoint,
  authorization_endpoint: endpoint,
  token_endpoint: endpoint,
  revocation_endpoint: endpoint.optional(),
  jwks_uri: endpoint.optional(),
  code_challenge_methods_supported: z.array(z.string()).optional(),
})
const Jwks = z.object({ keys: z.array(z.looseObject({ kty: z.string() })).max(1_000) })

export interface DiscoveredProvider {
  readonly metadata: ServerMetadata & {
    readonly authorization_endpoint: string
    readonly token_endpoint: string
  }
  /** Null while the keys were never had. */
  readonly jwks: z.output<typeof Jwks> | null
}

export interface Discovery extends AsyncDisposable {
  /** What is known, fetched now if nothing is. Null when it cannot be had. */
  current(): Promise<DiscoveredProvider | null>
}

const FETCH_DEADLINE_MS = 5_000
const REFRESH_MS = 60 * 60_000
const RETRY_MS = { first: 250, last: 30_000 } as const

export function watchDiscovery(url: URL, dependency: Dependency): Discovery {
  const leaving = new AbortController()
  let known: DiscoveredProvider | null = null
  let fetching: Promise<DiscoveredProvider | null> | null = null
  let timer: NodeJS.Timeout | undefined
  let failures = 0

  function fetchOnce(): Promise<DiscoveredProvider | null> {
    fetching ??= (async () => {
      try {
        known = await fetchProvider(url, known)
        failures = 0
        dependency.up()
      } catch (error) {
        failures += 1
        // With a document at hand the provider can be used; the next fetch may do better.
        if (known === null)
          dependency.down(error instanceof NoAnswer ? error.reason : describe(error))
      }
      fetching = null
      if (!leaving.signal.aborted) {
        const isComplete = known !== null && (known.jwks !== null || !known.metadata.jwks_uri)
        const pauseMs =
          failures === 0 && isComplete
            ? REFRESH_MS
            : Math.min(RETRY_MS.last, RETRY_MS.first * 2 ** failures)
        clearTimeout(timer)
        timer = setTimeout(() => void fetchOnce(), pauseMs)
      }
      return known
    })()
    return fetching
  }

  void fetchOnce()
  return {
    async current() {
      return known ?? fetchOnce()
    },
    async [Symbol.asyncDispose]() {
      leaving.abort()
      clearTimeout(timer)
      await fetching
    },
  }
}

const describe = (error: unknown): string =>
  error instanceof MetadataRefused ? error.message : reasonOf(error)

class MetadataRefused extends Error {
  override readonly name = 'MetadataRefused'
}

async function fetchProvider(
  url: URL,
  before: DiscoveredProvider | null,
): Promise<DiscoveredProvider> {
  const parsed = Metadata.safeParse(await fetchJson(url))
  if (!parsed.success) {
    const members = [...new Set(parsed.error.issues.map((issue) => issue.path.join('.')))]
    throw new MetadataRefused(
      `the discovery document is not usable: ${members.join(', ') || 'no object'}`,
    )
  }
  // An absent optional member stays absent: JSON knows no undefined.
  const metadata = parsed.data as DiscoveredProvider['metadata']
  for (const name of [
    'authorization_endpoint',
    'token_endpoint',
    'revocation_endpoint',
    'jwks_uri',
  ] as const) {
    // A document had over TLS must not lead tokens onto an open line.
    if (url.protocol === 'https:' && metadata[name]?.startsWith('http:')) {
      throw new MetadataRefused(`the discovery document is not usable: ${name} is not https`)
    }
  }
  const jwks = metadata.jwks_uri ? await fetchKeys(new URL(metadata.jwks_uri)) : null
  return { metadata, jwks: jwks ?? before?.jwks ?? null }
}

async function fetchKeys(url: URL): Promise<DiscoveredProvider['jwks']> {
  const parsed = Jwks.safeParse(await fetchJson(url).catch(() => null))
  return parsed.success && parsed.data.keys.length > 0 ? parsed.data : null
}

async function fetchJson(url: URL): Promise<unknown> {
  const answer = await exchangeHttp(url, {
    method: 'GET',
    headers: { accept: 'application/json' },
    body: null,
    deadlineMs: FETCH_DEADLINE_MS,
  })
  if (answer.status !== 200) throw new MetadataRefused(`${answer.status} instead of the document`)
  try {
    return JSON.parse(answer.text)
  } catch {
    throw new MetadataRefused('the document is no JSON')
  }
}
