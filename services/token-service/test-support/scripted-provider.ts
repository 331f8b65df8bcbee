/**
 * A fake provider over HTTP: discovery document, JWKS with a real RS256 key, token endpoint and revocation endpoint.
 * Tests configure its rotation, and script the next responses of its token endpoint.
 */
import { createHash, createSign, generateKeyPairSync, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import {
  createServer,
  type IncomingMessage,
  type OutgoingHttpHeaders,
  type ServerResponse,
} from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { gzipSync } from 'node:zlib'

const firstKey = generateKeyPairSync('rsa', { modulusLength: 2048 })
const secondKey = generateKeyPairSync('rsa', { modulusLength: 2048 })
const jwkOf = ({ publicKey }: typeof firstKey, kid: string) => ({
  ...publicKey.export({ format: 'jwk' }),
  kid,
  alg: 'RS256',
  use: 'sig',
})

export const CLIENT_ID = 'test-client'
export const CLIENT_SECRET = 'test-client-secret-0123456789'

/** The scripted response of the token endpoint to one request. */
export interface Scripted {
  /** Whether the refresh token is rotated although the response does not contain the new token pair. */
  readonly rotatesFirst?: boolean
  readonly status?: number
  readonly headers?: Readonly<Record<string, string | readonly string[]>>
  readonly body?: string | Buffer
  /** Members that override the members of a normal response; `undefined` removes a member. */
  readonly members?: Readonly<Record<string, unknown>>
  /** Compresses the body of a normal response. */
  readonly coding?: 'gzip'
  /** When the fake provider closes the connection: before the response body, or after a part of it. */
  readonly cuts?: 'before' | 'within'
  readonly latencyMs?: number
  /** The fake provider sends the response after this promise has settled. */
  readonly until?: Promise<void>
}

export interface TokenRequest {
  readonly grant: string
  readonly form: URLSearchParams
  readonly authorization: string
  readonly headers: IncomingMessage['headers']
  readonly at: number
}

export interface RevocationRequest {
  readonly contentType: string
  readonly members: Readonly<Record<string, unknown>>
}

interface GrantState {
  refreshToken: string
  /** The previous refresh tokens, each with the time in epoch ms at which it was rotated. */
  readonly retired: Map<string, number>
  isRevoked: boolean
}

export interface ScriptedProvider extends AsyncDisposable {
  readonly url: string
  readonly discoveryUrl: string
  /** The token requests, in the order of their arrival. */
  readonly requests: TokenRequest[]
  readonly revocations: RevocationRequest[]
  /** The largest number of token requests in flight at the same time. */
  readonly mostAtOnce: number
  readonly knobs: {
    rotation: 'always' | 'never'
    graceMs: number
    lifetimeSeconds: number
    latencyMs: number
    /** The accepted client secrets. A request with another secret gets the error `invalid_client`. */
    secrets: string[]
    pkce: boolean
    /** Whether the discovery document announces that callbacks always have `iss` (RFC 9207 §3). */
    sendsIssuer: boolean
    discoveryStatus: number
    jwksStatus: number
    /** The body of the JWKS response. */
    jwks: unknown
    revocationStatus: number
    revocationBody: string
    /** Members that override the members of the discovery document; `undefined` removes a member. */
    metadata: Record<string, unknown>
    /** Whether id tokens repeat the nonce of the authorization request. */
    echoesNonce: boolean
    /** Claims that override the claims of an id token; `undefined` removes a claim. */
    idTokenClaims: Record<string, unknown>
    idTokenHeader: Record<string, unknown>
  }
  /** Scripts the responses to the next token requests, with one argument per response. */
  script(...steps: readonly Scripted[]): void
  /** Issues a code for the parameters of an authorization URL, as the authorization page would. */
  authorize(url?: URL): string
  /** Publishes a second signing key and signs id tokens with it from now on. */
  rotateKey(): void
  /** Revokes every grant. */
  revokeAll(): void
}

export async function startScriptedProvider(): Promise<ScriptedProvider> {
  const requests: TokenRequest[] = []
  const revocations: RevocationRequest[] = []
  const steps: Scripted[] = []
  const codes = new Map<
    string,
    { readonly nonce: string | null; readonly challenge: string | null; isUsed: boolean }
  >()
  const grants: GrantState[] = []
  let signing = { key: firstKey, kid: 'first' }
  let atOnce = 0
  let mostAtOnce = 0
  const knobs: ScriptedProvider['knobs'] = {
    rotation: 'always',
    graceMs: 0,
    lifetimeSeconds: 3600,
    latencyMs: 0,
    secrets: [CLIENT_SECRET],
    pkce: true,
    sendsIssuer: false,
    discoveryStatus: 200,
    jwksStatus: 200,
    jwks: { keys: [jwkOf(firstKey, 'first')] },
    revocationStatus: 200,
    revocationBody: '{}',
    metadata: {},
    echoesNonce: true,
    idTokenClaims: {},
    idTokenHeader: {},
  }
  const server = createServer((request, response) => void serve(request, response))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname } = new URL(request.url ?? '/', url)
    if (pathname === '/discovery-document') return send(response, knobs.discoveryStatus, metadata())
    if (pathname === '/jwks') return send(response, knobs.jwksStatus, knobs.jwks)
    const body = await text(request)
    if (pathname === '/revoke') {
      const contentType = request.headers['content-type'] ?? ''
      const members: Record<string, unknown> = contentType.startsWith('application/json')
        ? (JSON.parse(body) as Record<string, unknown>)
        : Object.fromEntries(new URLSearchParams(body))
      revocations.push({ contentType, members })
      const grant = grants.find(({ refreshToken }) => refreshToken === members['token'])
      if (knobs.revocationStatus === 200 && grant !== undefined) grant.isRevoked = true
      response.writeHead(knobs.revocationStatus, { 'Content-Type': 'application/json' })
      return void response.end(knobs.revocationBody)
    }
    const form = new URLSearchParams(body)
    if (pathname !== '/token') return send(response, 404, {})
    atOnce += 1
    mostAtOnce = Math.max(mostAtOnce, atOnce)
    try {
      await token(form, request.headers, response)
    } finally {
      atOnce -= 1
    }
  }

  async function token(
    form: URLSearchParams,
    headers: IncomingMessage['headers'],
    response: ServerResponse,
  ): Promise<void> {
    const { authorization = '' } = headers
    const grant = form.get('grant_type') ?? ''
    requests.push({ grant, form, authorization, headers, at: Date.now() })
    const step = steps.shift() ?? {}
    const isPlain = step.status === undefined && step.cuts === undefined && step.body === undefined
    const reply =
      isPlain || step.rotatesFirst || step.cuts === 'within' ? decide(form, authorization) : null
    await new Promise((done) => setTimeout(done, step.latencyMs ?? knobs.latencyMs))
    await step.until
    if (step.cuts === 'before') return void response.destroy()
    if (step.cuts === 'within') {
      const whole = JSON.stringify(reply?.body)
      response.writeHead(200, {
        'Content-Type': 'application/json',
        'Content-Length': Buffer.byteLength(whole),
      })
      response.write(whole.slice(0, 20))
      setTimeout(() => response.destroy(), 10)
      return
    }
    const added = { intuit_tid: 'trace-1-0123456789', ...step.headers }
    if (isPlain && reply !== null) {
      const body = { ...reply.body, ...step.members }
      if (step.coding === undefined) return send(response, reply.status, body, added)
      response.writeHead(reply.status, {
        ...(added as OutgoingHttpHeaders),
        'Content-Encoding': step.coding,
      })
      return void response.end(gzipSync(JSON.stringify(body)))
    }
    response.writeHead(step.status ?? 200, {
      'Content-Type': 'application/json',
      ...(added as OutgoingHttpHeaders),
    })
    response.end(step.body ?? '')
  }

  function decide(
    form: URLSearchParams,
    authorization: string,
  ): { status: number; body: Record<string, unknown> } {
    const rejected = (status: number, error: string) => ({ status, body: { error } })
    const basic = Buffer.from(authorization.replace(/^Basic /, ''), 'base64')
      .toString('utf8')
      .split(':')
    const [id = '', secret = ''] = basic.map((part) =>
      decodeURIComponent(part.replaceAll('+', ' ')),
    )
    if (id !== CLIENT_ID || !knobs.secrets.includes(secret)) return rejected(401, 'invalid_client')
    if (form.get('grant_type') === 'authorization_code') return exchange(form, rejected)
    if (form.get('grant_type') !== 'refresh_token') return rejected(400, 'unsupported_grant_type')
    const presented = form.get('refresh_token') ?? ''
    const grant = grants.find(
      (known) => known.refreshToken === presented || known.retired.has(presented),
    )
    if (grant === undefined || grant.isRevoked) return rejected(400, 'invalid_grant')
    const retiredAt = grant.retired.get(presented)
    if (retiredAt !== undefined && Date.now() - retiredAt >= knobs.graceMs)
      return rejected(400, 'invalid_grant')
    if (knobs.rotation === 'always') {
      grant.retired.set(grant.refreshToken, Date.now())
      grant.refreshToken = random('rt')
    }
    return { status: 200, body: tokens(grant, null) }
  }

  function exchange(
    form: URLSearchParams,
    rejected: (status: number, error: string) => { status: number; body: Record<string, unknown> },
  ) {
    const code = codes.get(form.get('code') ?? '')
    if (code === undefined || code.isUsed) return rejected(400, 'invalid_grant')
    const verifier = form.get('code_verifier') ?? ''
    if (code.challenge !== null && code.challenge !== sha256(verifier))
      return rejected(400, 'invalid_grant') // RFC 7636 §4.6
    code.isUsed = true
    const grant: GrantState = { refreshToken: random('rt'), retired: new Map(), isRevoked: false }
    grants.push(grant)
    return { status: 200, body: tokens(grant, knobs.echoesNonce ? code.nonce : null) }
  }

  const tokens = (grant: GrantState, nonce: string | null) => ({
    access_token: random('at'),
    token_type: 'bearer',
    expires_in: knobs.lifetimeSeconds,
    refresh_token: grant.refreshToken,
    x_refresh_token_expires_in: 8_726_400,
    id_token: idToken(nonce),
  })

  function idToken(nonce: string | null): string {
    const seconds = Math.floor(Date.now() / 1000)
    const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')
    const signed = `${part({ alg: 'RS256', kid: signing.kid, ...knobs.idTokenHeader })}.${part({
      iss: url,
      aud: CLIENT_ID,
      sub: 'operator',
      iat: seconds,
      exp: seconds + 3600,
      ...(nonce !== null && { nonce }),
      ...knobs.idTokenClaims,
    })}`
    return `${signed}.${createSign('RSA-SHA256').update(signed).sign(signing.key.privateKey, 'base64url')}`
  }

  const metadata = () => ({
    issuer: url,
    authorization_endpoint: `${url}/authorize`,
    token_endpoint: `${url}/token`,
    revocation_endpoint: `${url}/revoke`,
    jwks_uri: `${url}/jwks`,
    response_types_supported: ['code'],
    subject_types_supported: ['public'],
    id_token_signing_alg_values_supported: ['RS256'],
    token_endpoint_auth_methods_supported: ['client_secret_basic'],
    ...(knobs.pkce && { code_challenge_methods_supported: ['S256'] }),
    ...(knobs.sendsIssuer && { authorization_response_iss_parameter_supported: true }),
    ...knobs.metadata,
  })

  return {
    url,
    discoveryUrl: `${url}/discovery-document`,
    requests,
    revocations,
    get mostAtOnce() {
      return mostAtOnce
    },
    knobs,
    script: (...more) => void steps.push(...more),
    authorize(at) {
      const code = random('code')
      codes.set(code, {
        nonce: at?.searchParams.get('nonce') ?? null,
        challenge: at?.searchParams.get('code_challenge') ?? null,
        isUsed: false,
      })
      return code
    },
    rotateKey() {
      signing = { key: secondKey, kid: 'second' }
      knobs.jwks = { keys: [jwkOf(firstKey, 'first'), jwkOf(secondKey, 'second')] }
    },
    revokeAll() {
      for (const grant of grants) grant.isRevoked = true
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

const sha256 = (value: string): string => createHash('sha256').update(value).digest('base64url')

/** Returns a random token or code. It begins with its kind, such as `rt`, so that tests can search for it. */
const random = (kind: 'at' | 'rt' | 'code'): string => `${kind}-${randomBytes(24).toString('hex')}`

function send(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Scripted['headers'] = {},
): void {
  response.writeHead(status, {
    'Content-Type': 'application/json',
    ...(headers as OutgoingHttpHeaders),
  })
  response.end(JSON.stringify(body))
}
