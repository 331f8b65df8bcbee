import { setTimeout as delay } from 'node:timers/promises'
import { AccessTokenView } from '@integration-host/shared/contracts/credential'
import { Problem } from '@integration-host/shared/contracts/problem'
import { credentialName } from '@integration-host/shared/contracts/realm'
import { type ErrorCode, IntegrationError } from '@integration-host/shared/errors'
import { type Dependency, reasonOf } from '@integration-host/shared/observability/health'
import type { Secret } from '@integration-host/shared/secrets/secret'
import { upstreamBase } from '../../proxy/target.ts'
import type { TokenSource } from '../../realm/access-token.ts'
import { type Answer, ask } from '@integration-host/shared/http/client/ask'
import { connectUpstream } from '../http/upstream.ts'

export interface TokenServiceOptions {
  /** `TOKEN_SERVICE_URL` */
  readonly url: string
  readonly key: Secret
  readonly dependency: Dependency
  /** token-service may have to wait for the provider before it can answer. */
  readonly deadlineMs?: number
}

export interface TokenServiceConnection extends AsyncDisposable {
  readonly source: TokenSource
}

/** Errors of token-service that a caller can act on; all others mean that no token can be had now. */
const TOLD: readonly ErrorCode[] = [
  'credential_not_found',
  'credential_faulted',
  'provider_unavailable',
]
/** What a header can hold; RFC 6750 §2.1 allows less, providers use more. */
const BEARER = /^[\x21-\x7e]+$/
const PROBE_MS = { up: 5_000, down: 250, longest: 5_000 }

/** The token source that asks token-service over HTTP, and keeps an eye on whether it is there. */
export function connectTokenService(options: TokenServiceOptions): TokenServiceConnection {
  const { key, dependency, deadlineMs = 35_000 } = options
  const base = upstreamBase(options.url)
  const connection = connectUpstream(base.origin, { connectTimeoutMs: 2_000 })
  const closing = new AbortController()

  async function call(
    method: 'GET' | 'POST',
    path: string,
    body: unknown,
    timeoutMs: number,
  ): Promise<Answer> {
    const headers = ['Authorization', `Bearer ${key.reveal()}`, 'Accept', 'application/json']
    if (body !== null) headers.push('Content-Type', 'application/json')
    const request = {
      method,
      path: base.pathPrefix + path,
      headers,
      body: body === null ? null : Buffer.from(JSON.stringify(body)),
    }
    try {
      return await ask(connection.upstream, request, { timeoutMs, signal: closing.signal })
    } catch (cause) {
      dependency.down(reasonOf(cause instanceof Error ? (cause.cause ?? cause) : cause))
      throw unavailable('token-service does not answer', cause)
    }
  }

  async function probe(): Promise<void> {
    let pauseMs = PROBE_MS.down
    while (!closing.signal.aborted) {
      try {
        const { status } = await call('GET', '/health/live', null, 2_000)
        if (status === 200) dependency.up()
        else dependency.down(`status ${status}`)
      } catch {
        // Told to the dependency already.
      }
      const isUp = dependency.state.status === 'up'
      pauseMs = isUp ? PROBE_MS.down : Math.min(PROBE_MS.longest, pauseMs * 2)
      await delay(isUp ? PROBE_MS.up : pauseMs, null, { signal: closing.signal, ref: false }).catch(
        () => {},
      )
    }
  }
  const probing = probe()

  return {
    source: {
      async token(realm) {
        const name = credentialName(realm)
        const answer = await call('GET', `/credentials/${name}/token`, null, deadlineMs)
        if (answer.status !== 200) throw refusal(answer)
        const token = AccessTokenView.safeParse(parsed(answer.text))
        // Another company's token must never be used, whatever the reason it came.
        if (!token.success || token.data.Name !== name || !BEARER.test(token.data.Authenticator))
          throw unavailable('token-service gave an answer that cannot be used')
        return {
          value: token.data.Authenticator,
          expiresAt: Date.parse(token.data.Expiry),
          version: token.data.Version,
        }
      },
      async refresh(realm, version) {
        const path = `/credentials/${credentialName(realm)}/refresh`
        const answer = await call('POST', path, { Version: version }, deadlineMs)
        if (answer.status !== 200) throw refusal(answer)
      },
    },
    async [Symbol.asyncDispose]() {
      closing.abort()
      await probing
      await connection[Symbol.asyncDispose]()
    },
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}

/** What token-service said, in its own words where its code is one for our caller. */
function refusal(answer: Answer): IntegrationError {
  const { status, text } = answer
  const problem = Problem.safeParse(parsed(text))
  const code = TOLD.find((known) => problem.success && problem.data.code === known)
  if (!problem.success || code === undefined)
    return unavailable(
      status === 401 || status === 403
        ? 'token-service does not accept the service key'
        : `token-service answered ${status}`,
    )
  const { type: _type, title, status: _status, code: _code, detail, ...members } = problem.data
  return new IntegrationError(code, detail ?? title, {
    members,
    ...(code === 'provider_unavailable' && {
      retryAfterSeconds: secondsOf(answer.header('retry-after')),
    }),
  })
}

const secondsOf = (retryAfter: string | null): number =>
  retryAfter !== null && /^\d{1,6}$/.test(retryAfter) ? Number(retryAfter) : 5

const unavailable = (message: string, cause?: unknown): IntegrationError =>
  new IntegrationError('token_service_unavailable', message, { retryAfterSeconds: 5, cause })
