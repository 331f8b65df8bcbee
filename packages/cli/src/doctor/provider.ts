import { z } from 'zod'
import { remedyFor } from '@integration-host/shared/conditions'
import type { ProxyFor } from '@integration-host/shared/http/forward-proxy/forward-proxy'
import {
  createProxiedFetch,
  ForwardProxyError,
  type ForwardProxyFailure,
  openTunnel,
} from '@integration-host/shared/http/forward-proxy/tunnel'
import { isLoopback } from '@integration-host/shared/http/origin-guard'
import { parseJson } from '@integration-host/shared/json'
import {
  checkClock,
  httpClock,
  type CheckResult,
  ok,
  problem,
  skipped,
  warning,
} from '@integration-host/shared/observability/checks'
import type { ProviderProfile } from '@integration-host/shared/provider-profile/provider-profile'
import type { Secret } from '@integration-host/shared/secrets/secret'
import {
  type CallProvider,
  checkKeyPair,
  createCall,
  NoResponse,
  type ProviderResponse,
} from '../verify-provider/provider-call.ts'
import { described } from '../verify-provider/wording.ts'
import { reached, unreachable } from './reach.ts'
import { resultsOf } from './results.ts'

/** The members of the discovery document that token-service needs. */
const Discovery = z.object({
  issuer: z.string(),
  authorization_endpoint: z.url(),
  token_endpoint: z.url(),
})
const CALL_DEADLINE_MS = 10_000

/** The client settings that doctor presents to the provider; `undefined` if a setting is missing. */
export interface ProviderClient {
  readonly id: string | undefined
  /** The client secrets in order of preference. */
  readonly secrets: readonly Secret[] | undefined
  readonly redirect: string | undefined
  readonly profile: ProviderProfile
  readonly proxyFor: ProxyFor
}

/**
 * Checks whether the forward proxy opens connections to the provider, whether the provider's discovery document can be used, and whether the provider accepts client id and secret.
 */
export async function examineProvider(
  address: string,
  client: ProviderClient,
  signal: AbortSignal,
): Promise<readonly CheckResult[]> {
  const url = new URL(address)
  const throughProxy = await examineForwardProxy(client.proxyFor, url, signal)
  if (throughProxy.some(({ verdict }) => verdict === 'problem')) return throughProxy
  const requestedAt = Date.now()
  let response: Response
  let text: string
  try {
    response = await createProxiedFetch(client.proxyFor)(url, { redirect: 'manual', signal })
    text = await response.text()
  } catch (error) {
    return [...throughProxy, unreachable(url.host, 'DISCOVERY_URL', error)]
  }
  const clock = httpClock(response, requestedAt, Date.now())
  const document = readDocument(response.status, text)
  return resultsOf(
    throughProxy,
    reached(url.host),
    document.result,
    document.tokenEndpoint !== null &&
      (await examineKeyPair(new URL(document.tokenEndpoint), url, client, signal)),
    url.protocol === 'http:' &&
      !isLoopback(url.hostname) &&
      warning('transport', 'plain http', 'Use https: tokens are sent unencrypted.'),
    clock !== null && checkClock(clock),
  )
}

function readDocument(
  status: number,
  text: string,
): { readonly result: CheckResult; readonly tokenEndpoint: string | null } {
  const unusable = (found: string) => ({
    result: problem(
      'discovery',
      found,
      'Set DISCOVERY_URL to the address of the OpenID discovery document.',
    ),
    tokenEndpoint: null,
  })
  if (status !== 200) return unusable(`status ${status}`)
  const document = Discovery.safeParse(parseJson(text))
  if (!document.success) {
    const lacking = document.error.issues.map(({ path }) => path.join('.')).filter(Boolean)
    return unusable(lacking.length === 0 ? 'is not JSON' : `no usable ${lacking.join(', ')}`)
  }
  const { issuer, token_endpoint } = document.data
  return { result: ok('discovery', issuer), tokenEndpoint: token_endpoint }
}

/**
 * Presents a made-up authorization code with each client secret in the order that token-service uses, until the
 * provider accepts a secret.
 */
async function examineKeyPair(
  tokenEndpoint: URL,
  discoveryUrl: URL,
  { id, secrets, redirect, profile, proxyFor }: ProviderClient,
  signal: AbortSignal,
): Promise<readonly CheckResult[]> {
  const check = 'key pair'
  if (discoveryUrl.protocol === 'https:' && tokenEndpoint.protocol !== 'https:')
    return [
      problem(check, 'not checked: token_endpoint is not https', 'Use another DISCOVERY_URL.'),
    ]
  const call = createCall({ signal, deadlineMs: CALL_DEADLINE_MS, proxyFor })
  if (id === undefined || secrets === undefined) {
    const missing = [id === undefined && 'CLIENT_ID', secrets === undefined && 'CLIENT_SECRET']
    const names = missing.filter(Boolean).join(' and ')
    return [
      ...(await examineTokenEndpoint(call, tokenEndpoint, profile)),
      skipped(
        check,
        `not checked here: needs ${names}`,
        `Set ${names}. token-service reports a rejected client as provider-client.`,
      ),
    ]
  }
  try {
    for (const clientSecret of secrets) {
      const result = await checkKeyPair(call, {
        tokenEndpoint: tokenEndpoint.href,
        clientId: id,
        clientSecret,
        redirect: redirect ?? 'http://localhost/',
        headers: profile.token.requestHeaders,
      })
      if (result.kind === 'right') return [ok(check, 'accepted by the token endpoint')]
      if (result.kind === 'unclear')
        return [
          result.response.status >= 500
            ? failing(result.response, profile)
            : warning(
                check,
                `inconclusive: ${described(result.response, profile)}`,
                'Try again. If the result is the same, run integration-host verify-provider.',
              ),
        ]
    }
    return [
      problem(
        check,
        'rejected by the token endpoint',
        'Set CLIENT_ID and CLIENT_SECRET to the keys of this provider; sandbox and production have their own.',
      ),
    ]
  } catch (error) {
    const reason = error instanceof NoResponse ? error.message : 'no response in time'
    return [problem(check, `not checked: ${reason}`, 'Check that the token endpoint is available.')]
  }
}

/** Sends a made-up authorization code without client id and secret. A working token endpoint rejects this request. */
async function examineTokenEndpoint(
  call: CallProvider,
  tokenEndpoint: URL,
  profile: ProviderProfile,
): Promise<readonly CheckResult[]> {
  try {
    const response = await call(tokenEndpoint, {
      method: 'POST',
      headers: profile.token.requestHeaders,
      body: new URLSearchParams({ grant_type: 'authorization_code', code: 'made-up' }),
    })
    return [
      response.status >= 500
        ? failing(response, profile)
        : ok(TOKEN_ENDPOINT, `responds (${response.status})`),
    ]
  } catch (error) {
    const reason = error instanceof NoResponse ? error.message : 'no response in time'
    return [problem(TOKEN_ENDPOINT, reason, NOTHING_REFRESHED)]
  }
}

const TOKEN_ENDPOINT = 'token endpoint'
const NOTHING_REFRESHED = remedyFor(
  'RefreshesFailing',
  "No company is refreshed until it responds: check the provider's status page",
)

const failing = (response: ProviderResponse, profile: ProviderProfile): CheckResult =>
  problem(TOKEN_ENDPOINT, `fails: ${described(response, profile)}`, NOTHING_REFRESHED)

const PROXY = 'forward proxy'

/** Lets the forward proxy of a URL open a connection to it. Returns no result if the URL is reached directly. */
async function examineForwardProxy(
  proxyFor: ProxyFor,
  url: URL,
  signal: AbortSignal,
): Promise<readonly CheckResult[]> {
  const proxy = proxyFor(url)
  if (proxy === null) return []
  try {
    const tunnel = await openTunnel(proxy, url, { signal })
    tunnel.destroy()
  } catch (error) {
    // Any other error is one of the TLS connection to the provider. The check of the provider reports it.
    if (error instanceof ForwardProxyError)
      return [problem(PROXY, error.message, remedyOf(error.code, url))]
  }
  return [ok(PROXY, `${proxy.address} connects to ${url.host}`)]
}

function remedyOf(code: ForwardProxyFailure, url: URL): string {
  const setting = url.protocol === 'https:' ? 'HTTPS_PROXY' : 'HTTP_PROXY'
  switch (code) {
    case 'PROXY_UNREACHABLE':
    case 'PROXY_TIMEOUT':
      return `Check that ${setting} is right and the proxy is running, or add the host to NO_PROXY.`
    case 'PROXY_AUTHENTICATION_REQUIRED':
      return `Put user name and password into the URL of ${setting}_FILE.`
    case 'PROXY_REFUSED':
      return `Let the proxy accept CONNECT to ${url.host} from this machine.`
    case 'PROXY_INVALID_RESPONSE':
      return `Set ${setting} to the address of an HTTP forward proxy.`
  }
}
