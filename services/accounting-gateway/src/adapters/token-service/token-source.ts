import { setTimeout as delay } from 'node:timers/promises'
import { createService, type Reply, type ServiceRequest } from '@integration-host/client/service'
import { AccessTokenView } from '@integration-host/shared/contracts/credential'
import {
  Problem,
  type ErrorCode,
  errorCodes,
  IntegrationError,
} from '@integration-host/shared/errors'
import { credentialName } from '@integration-host/shared/contracts/realm'
import { requestText } from '@integration-host/fast-http/request-text'
import { parseJson, parseJsonAs } from '@integration-host/shared/json'
import { type Dependency, reasonOf } from '@integration-host/shared/observability/health'
import { backoffMs } from '@integration-host/shared/process/backoff'
import type { Secret } from '@integration-host/shared/secrets/secret'
import { coolDownMs } from '../../proxy/retry.ts'
import { upstreamBase } from '../../proxy/target.ts'
import type { TokenSource } from '../../realm/token-cache.ts'
import { connectUpstream } from '../http/upstream.ts'

export interface TokenServiceOptions {
  /** Base URL of token-service, from the setting `TOKEN_SERVICE_URL`. */
  readonly url: string
  readonly key: Secret
  readonly dependency: Dependency
  /**
   * Timeout of one request in ms. The default of 35 s is long because token-service may have to wait for the OAuth
   * provider before it responds.
   */
  readonly deadlineMs?: number
}

export interface TokenServiceConnection extends AsyncDisposable {
  readonly source: TokenSource
}

/**
 * The error codes of token-service that are forwarded, because callers can act on them. Every other error becomes
 * `token_service_unavailable`.
 */
const FORWARDED_CODES: readonly ErrorCode[] = [
  'credential_not_found',
  'credential_faulted',
  'provider_unavailable',
  'provider_client_rejected',
]
/**
 * Matches an access token of visible ASCII characters, which are safe in a header value. The syntax of RFC 6750 §2.1 is
 * narrower, but some providers issue tokens with other characters.
 */
const BEARER = /^[\x21-\x7e]+$/
/**
 * Pauses between two health probes in ms: `upMs` after a successful probe, and the back-off `down` after failed probes.
 */
const PROBE = { upMs: 5_000, down: { baseMs: 500, capMs: 5_000, random: 1 } }
/** The `Retry-After` value for callers, in seconds, if token-service sent no such header. */
const DEFAULT_RETRY_AFTER_S = 5

/**
 * Returns a token source that requests tokens from token-service over HTTP. It also polls the health of token-service
 * and reports the result in the gateway's readiness.
 */
export function connectTokenService(options: TokenServiceOptions): TokenServiceConnection {
  const { key, dependency, deadlineMs = 35_000 } = options
  const base = upstreamBase(options.url)
  const connection = connectUpstream(base.origin, { connectTimeoutMs: 2_000 })
  const closing = new AbortController()

  const tokenService = createService({
    url: options.url,
    key,
    async exchange({ path, headers, body, timeoutMs, ...request }) {
      const response = await requestText(
        connection.upstream,
        {
          ...request,
          path: base.pathPrefix + path,
          headers: Object.entries(headers).flat(),
          body: body === null ? null : [Buffer.from(body)],
        },
        { timeoutMs, signal: closing.signal },
      )
      const { status, text } = response
      return { status, text, headers: { get: (name) => response.header(name) } }
    },
  })
  const call = (path: string, request: ServiceRequest): Promise<Reply> =>
    tokenService.send(path, request).catch((cause: unknown) => {
      dependency.down(reasonOf(cause))
      throw unavailable('token-service is unavailable', cause)
    })

  async function probe(): Promise<void> {
    let failures = 0
    while (!closing.signal.aborted) {
      try {
        const { status } = await call('/health/live', { timeoutMs: 2_000 })
        if (status === 200) dependency.up()
        else dependency.down(`status ${status}`)
      } catch {
        // No report is needed here, because `call` has already reported this failure to `dependency`.
      }
      const isUp = dependency.state.status === 'up'
      failures = isUp ? 0 : failures + 1
      const pauseMs = isUp ? PROBE.upMs : backoffMs(failures, PROBE.down)
      await delay(pauseMs, null, { signal: closing.signal, ref: false }).catch(() => {})
    }
  }
  const probing = probe()

  return {
    source: {
      async token(realm) {
        const name = credentialName(realm)
        const response = await call(`/credentials/${name}/token`, { timeoutMs: deadlineMs })
        if (response.status !== 200) throw errorOf(response)
        const token = AccessTokenView.safeParse(parseJson(response.text))
        // The response must name the requested credential. Otherwise a defect of token-service could make the gateway
        // send one company's token with another company's call.
        if (!token.success || token.data.Name !== name || !BEARER.test(token.data.Authenticator))
          throw unavailable('token-service sent an invalid response')
        return {
          value: token.data.Authenticator,
          expiresAt: Date.parse(token.data.Expiry),
          version: token.data.Version,
        }
      },
      async refresh(realm, version) {
        const path = `/credentials/${credentialName(realm)}/refresh`
        const body = { Version: version }
        const response = await call(path, { method: 'POST', body, timeoutMs: deadlineMs })
        if (response.status !== 200) throw errorOf(response)
      },
    },
    async [Symbol.asyncDispose]() {
      closing.abort()
      await probing
      await connection[Symbol.asyncDispose]()
    },
  }
}

/**
 * Converts an error response of token-service into the error for the caller. The detail text is forwarded only if the
 * error code is one of `FORWARDED_CODES`.
 */
function errorOf(response: Reply): IntegrationError {
  const { status, text } = response
  const problem = parseJsonAs(Problem, text)
  const code = FORWARDED_CODES.find((known) => problem?.code === known)
  if (problem === null || code === undefined)
    return unavailable(
      status === 401 || status === 403
        ? 'token-service does not accept the service key'
        : `token-service responded with status ${status}`,
    )
  const { type: _type, title, status: _status, code: _code, detail, ...members } = problem
  return new IntegrationError(code, detail ?? title, {
    members,
    ...(errorCodes[code].status === 503 && { retryAfterSeconds: retryAfterSecondsOf(response) }),
  })
}

function retryAfterSecondsOf({ headers }: Reply): number {
  const ms = coolDownMs(headers.get('retry-after'), Date.now())
  return ms === null ? DEFAULT_RETRY_AFTER_S : Math.ceil(ms / 1_000)
}

const unavailable = (message: string, cause?: unknown): IntegrationError =>
  new IntegrationError('token_service_unavailable', message, {
    retryAfterSeconds: DEFAULT_RETRY_AFTER_S,
    cause,
  })
