/**
 * Fetches the provider's discovery document and signing keys in the background. If a later fetch fails, the last usable
 * document and keys stay in use.
 *
 * The document is fetched from DISCOVERY_URL exactly as configured. openid-client's own discovery is not used, because
 * it expects the path of OpenID Connect Discovery §4, and some providers publish the document at another path.
 */
import type { ServerMetadata } from 'openid-client'
import { z } from 'zod'
import type { ProxyFor } from '@integration-host/shared/http/forward-proxy/forward-proxy'
import { parseJson } from '@integration-host/shared/json'
import { type Dependency, reasonOf } from '@integration-host/shared/observability/health'
import { backoffMs } from '@integration-host/shared/process/backoff'
import { isSuccess, NoResponse, sendRequest } from './send-request.ts'

const endpoint = z.url({ protocol: /^https?$/ })

/**
 * Returns the schema for a list in the discovery document. The list may be absent, because RFC 8414 §2 defines a
 * default. If present, it must contain `value`.
 */
const listWith = (value: string) =>
  z
    .array(z.string())
    .refine((list) => list.includes(value), `lacks ${value}`)
    .optional()
const list = () => z.array(z.string()).optional()

const Metadata = z.looseObject({
  issuer: endpoint,
  authorization_endpoint: endpoint,
  token_endpoint: endpoint,
  revocation_endpoint: endpoint.optional(),
  jwks_uri: endpoint.optional(),
  // The service supports only the code flow, client authentication by HTTP Basic, and id tokens with an asymmetric
  // signature. A document that excludes any of these is not usable.
  response_types_supported: listWith('code'),
  grant_types_supported: listWith('authorization_code'),
  token_endpoint_auth_methods_supported: listWith('client_secret_basic'),
  id_token_signing_alg_values_supported: z
    .array(z.string())
    .refine((algs) => algs.some((alg) => ASYMMETRIC.test(alg)), 'has no asymmetric algorithm')
    .optional(),
  claims_supported: list(),
  code_challenge_methods_supported: list(),
  authorization_response_iss_parameter_supported: z.boolean().optional(),
})

/** The signature algorithms that are verified with a public key (RFC 7518 §3.1 and RFC 8037). */
export const ASYMMETRIC = /^(?:RS|PS|ES)(?:256|384|512)$|^EdDSA$|^Ed25519$/

const Jwks = z.object({ keys: z.array(z.unknown()).max(1_000) })
const Jwk = z.looseObject({ kty: z.string() })

export interface DiscoveredProvider {
  readonly metadata: ServerMetadata & {
    readonly authorization_endpoint: string
    readonly token_endpoint: string
  }
  /** The provider's signing keys; `null` until they have been fetched for the first time. */
  readonly jwks: { readonly keys: readonly z.output<typeof Jwk>[] } | null
}

export interface Discovery extends AsyncDisposable {
  /**
   * Resolves with the last usable document. If there is none yet, fetches the document first; `null` if this fetch
   * fails.
   */
  current(): Promise<DiscoveredProvider | null>
  /**
   * Fetches the signing keys again, for an id token that is signed with an unknown key. Resolves with `null` if they
   * cannot be fetched.
   */
  readonly refetchKeys: () => Promise<DiscoveredProvider['jwks']>
  /**
   * The reason why there is no usable document; `null` if there is one. The reason contains no text from the provider.
   */
  readonly problem: string | null
}

const FETCH_DEADLINE_MS = 5_000
const REFRESH_MS = 60 * 60_000
/**
 * Retries have no jitter (`random: 1`), because each process fetches only one document, so simultaneous retries cause
 * little load.
 */
const RETRY = { baseMs: 250, capMs: 30_000, random: 1 } as const

export interface DiscoveryOptions {
  /** Whether id tokens are requested. If true, a document without `jwks_uri` is not usable. */
  readonly needsKeys: boolean
  readonly proxyFor: ProxyFor
}

export function watchDiscovery(
  url: URL,
  dependency: Dependency,
  options: DiscoveryOptions,
): Discovery {
  const shutdown = new AbortController()
  let known: DiscoveredProvider | null = null
  let fetching: Promise<DiscoveredProvider | null> | null = null
  let timer: NodeJS.Timeout | undefined
  let failures = 0
  let problem: string | null = 'the discovery document of the provider has not been fetched yet'

  function fetchOnce(): Promise<DiscoveredProvider | null> {
    fetching ??= (async () => {
      try {
        known = await fetchProvider(url, known, options)
        failures = 0
        problem = null
        dependency.up()
      } catch (error) {
        failures += 1
        // The document of an earlier fetch stays in use, so this failed fetch is not reported.
        if (known === null) {
          const reason = error instanceof NoResponse ? error.reason : describe(error)
          problem =
            error instanceof UnusableDocument
              ? error.message
              : `the discovery document of the provider cannot be fetched (${reason})`
          dependency.down(reason)
        }
      }
      fetching = null
      if (!shutdown.signal.aborted) {
        const isComplete = known !== null && (known.jwks !== null || !known.metadata.jwks_uri)
        const pauseMs = failures === 0 && isComplete ? REFRESH_MS : backoffMs(failures + 1, RETRY)
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
    async refetchKeys() {
      const uri = known?.metadata.jwks_uri
      const jwks = uri === undefined ? null : await fetchKeys(new URL(uri), options.proxyFor)
      if (known !== null && jwks !== null) known = { ...known, jwks }
      return jwks
    },
    get problem() {
      return problem
    },
    async [Symbol.asyncDispose]() {
      shutdown.abort()
      clearTimeout(timer)
      await fetching
    },
  }
}

const describe = (error: unknown): string =>
  error instanceof UnusableDocument ? error.message : reasonOf(error)

/** The error for an unusable discovery document. The message names each invalid member, but contains no value. */
class UnusableDocument extends Error {
  override readonly name = 'UnusableDocument'

  constructor(problems: readonly string[]) {
    super(`the discovery document is not usable: ${problems.join('; ')}`)
  }
}

async function fetchProvider(
  url: URL,
  previous: DiscoveredProvider | null,
  { needsKeys, proxyFor }: DiscoveryOptions,
): Promise<DiscoveredProvider> {
  const document = await fetchJson(url, proxyFor)
  const parsed = Metadata.safeParse(document)
  if (!parsed.success) throw new UnusableDocument(problemsOf(parsed.error, document))
  // The cast is safe: JSON has no `undefined`, so an optional member is either absent or has a value.
  const metadata = parsed.data as DiscoveredProvider['metadata']
  const problems: string[] = []
  for (const name of [
    'authorization_endpoint',
    'token_endpoint',
    'revocation_endpoint',
    'jwks_uri',
  ] as const) {
    // A document that was fetched over TLS must not contain http endpoints, because tokens would be sent to them in
    // plain text.
    if (url.protocol === 'https:' && metadata[name]?.startsWith('http:'))
      problems.push(`${name} is not https`)
  }
  if (needsKeys && metadata.jwks_uri === undefined)
    problems.push('jwks_uri is missing, and SCOPE requests id tokens')
  if (problems.length > 0) throw new UnusableDocument(problems)
  const jwks = metadata.jwks_uri ? await fetchKeys(new URL(metadata.jwks_uri), proxyFor) : null
  return { metadata, jwks: jwks ?? previous?.jwks ?? null }
}

/** Describes each invalid member, for example `token_endpoint is missing` or `response_types_supported lacks code`. */
function problemsOf(error: z.ZodError, document: unknown): string[] {
  const problems = error.issues.map(({ code, path, message }) => {
    const [member] = path
    if (member === undefined) return 'it is not a JSON object'
    if (code === 'custom') return `${String(member)} ${message}`
    const isThere = typeof document === 'object' && document !== null && member in document
    return `${String(member)} ${isThere ? 'is malformed' : 'is missing'}`
  })
  return [...new Set(problems)]
}

async function fetchKeys(url: URL, proxyFor: ProxyFor): Promise<DiscoveredProvider['jwks']> {
  const parsed = Jwks.safeParse(await fetchJson(url, proxyFor).catch(() => null))
  // Unusable keys are ignored, and the other keys are used (RFC 7517 §5).
  const keys = (parsed.data?.keys ?? []).flatMap((key) => Jwk.safeParse(key).data ?? [])
  return keys.length > 0 ? { keys } : null
}

async function fetchJson(url: URL, proxyFor: ProxyFor): Promise<unknown> {
  const request = {
    method: 'GET',
    headers: { accept: 'application/json' },
    body: null,
    deadlineMs: FETCH_DEADLINE_MS,
  }
  const response = await sendRequest(url, request, proxyFor)
  if (!isSuccess(response.status))
    throw new UnusableDocument([`the response has status ${response.status}`])
  const document = parseJson(response.text)
  if (document !== undefined) return document
  if (response.cutOff !== null) throw new NoResponse(response.cutOff, true)
  throw new UnusableDocument(['it is not JSON'])
}
