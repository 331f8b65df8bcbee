/**
 * A proxy in front of the sandbox provider. It records every secret in requests and responses for the later
 * search. On request, it responds to a token call with a body that leaks the secrets of this call.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { buffer } from 'node:stream/consumers'
import { startHttpServer } from '../fakes/http-server.ts'
import { type KnownSecret, knownSecret } from './secret-search.ts'

/** The secrets of one token request, which a response can leak. */
export interface TokenCallSecrets {
  /** The form-encoded request body as the client sent it. */
  readonly form: string
  readonly refreshToken: string
  readonly authorization: string
  /** The token from the provider's own response, which the client never receives. */
  readonly accessToken: string
  readonly nextRefreshToken: string
}

/** A response that the proxy sends instead of the provider's own response. */
export interface LeakyResponse {
  readonly status: number
  readonly contentType: string
  readonly body: (secrets: TokenCallSecrets) => string
}

export interface RecordingProvider extends AsyncDisposable {
  readonly url: string
  /** All secrets seen so far, without duplicates. */
  secrets(): readonly KnownSecret[]
  /** The bearer tokens that were used in calls to the accounting API. */
  readonly bearers: readonly string[]
  /**
   * Replaces the responses to the next refreshes of a grant. `code` is the authorization code that started the
   * grant. The provider accepts these refreshes before the proxy replaces its responses.
   */
  leakNext(code: string, ...responses: readonly LeakyResponse[]): void
  /** Returns the number of replacement responses that have not been sent yet. */
  remainingLeaks(code: string): number
}

const SECRET_PARAMETERS = ['refresh_token', 'code', 'code_verifier', 'token', 'client_secret']
const SECRET_MEMBERS = ['access_token', 'refresh_token', 'id_token']

/**
 * Starts the proxy.
 *
 * @param target the URL of the provider
 */
export async function startRecordingProvider(target: string): Promise<RecordingProvider> {
  const seen = new Map<string, KnownSecret>()
  const bearers: string[] = []
  /** Maps each refresh token to the authorization code that started the token's grant. */
  const codes = new Map<string, string>()
  const leaks = new Map<string, LeakyResponse[]>()
  const record = (kind: string, value: string | null | undefined): void => {
    if (value) seen.set(value, knownSecret(kind, value))
  }

  async function forward(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { authorization = '' } = request.headers
    const body = await buffer(request)
    const form = new URLSearchParams(
      request.headers['content-type']?.startsWith('application/x-www-form-urlencoded')
        ? body.toString()
        : '',
    )
    record('client authentication', /^Basic (.+)$/.exec(authorization)?.[1])
    const [, bearer] = /^Bearer (.+)$/.exec(authorization) ?? []
    if (bearer !== undefined) {
      bearers.push(bearer)
      record('access token', bearer)
    }
    for (const name of SECRET_PARAMETERS) record(`${name} that was sent`, form.get(name))
    if (request.headers['content-type']?.startsWith('application/json')) {
      const document = tokensOf(body.toString())
      for (const name of SECRET_PARAMETERS) record(`${name} that was sent`, document[name])
    }

    const { host: _, connection: __, ...headers } = request.headers
    const upstream = await fetch(target + request.url, {
      method: request.method ?? 'GET',
      redirect: 'manual',
      headers: headers as Record<string, string>,
      ...(body.length > 0 && { body }),
    })
    const text = await upstream.text()
    const members = form.has('grant_type') && upstream.ok ? tokensOf(text) : {}
    for (const name of SECRET_MEMBERS) record(`${name} that was issued`, members[name])

    const code = form.get('code') ?? codes.get(form.get('refresh_token') ?? '') ?? ''
    if (members['refresh_token'] !== undefined) codes.set(members['refresh_token'], code)
    const leak = form.has('refresh_token') ? leaks.get(code)?.shift() : undefined
    if (leak !== undefined) {
      response.writeHead(leak.status, { 'Content-Type': leak.contentType })
      response.end(
        leak.body({
          form: body.toString(),
          authorization,
          refreshToken: form.get('refresh_token') ?? '',
          accessToken: members['access_token'] ?? '',
          nextRefreshToken: members['refresh_token'] ?? '',
        }),
      )
      return
    }
    const headersOut = [...upstream.headers].filter(
      ([name]) => !['connection', 'transfer-encoding', 'content-length'].includes(name),
    )
    response.writeHead(upstream.status, Object.fromEntries(headersOut))
    response.end(text)
  }

  const server = await startHttpServer(forward)
  return {
    url: server.url,
    secrets: () => [...seen.values()],
    bearers,
    leakNext: (code, ...responses) => void leaks.set(code, [...responses]),
    remainingLeaks: (code) => leaks.get(code)?.length ?? 0,
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  }
}

function tokensOf(text: string): Readonly<Record<string, string | undefined>> {
  try {
    const document: unknown = JSON.parse(text)
    return typeof document === 'object' && document !== null ? { ...document } : {}
  } catch {
    return {}
  }
}
