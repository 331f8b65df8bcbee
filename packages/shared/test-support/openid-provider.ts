/** A small OpenID provider over HTTP: discovery, keys, code flow with PKCE, and id tokens signed with RS256. */
import { createHash, generateKeyPairSync, randomUUID, sign } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'

export const CLIENT_ID = 'integration-host-console'
export const CLIENT_SECRET = 'a client secret: with % and spaces'

/** The ways in which the provider violates the protocol. */
export interface Misbehaviour {
  /** Changes the query with which the browser is sent back. */
  readonly callback?: (query: URLSearchParams) => void
  /** Signs id tokens with a key that the provider does not publish. */
  readonly hasForeignKey?: boolean
  /** The status with which the token endpoint responds to every request. */
  readonly status?: number
}

export interface TestProvider extends AsyncDisposable {
  readonly issuer: string
  /** All tokens and codes that were issued. */
  readonly secrets: readonly string[]
  /** Sets the claims of the next id tokens, in addition to the claims that every id token has. */
  signInAs(claims: Readonly<Record<string, unknown>>, misbehaviour?: Misbehaviour): void
}

const json = (response: ServerResponse, status: number, body: unknown): void =>
  void response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(body))

const base64url = (value: unknown): string =>
  Buffer.from(JSON.stringify(value)).toString('base64url')

/**
 * Starts the provider. It accepts only the client authentication `authentication`. The host name matters for cookies,
 * because browsers see `localhost` and `127.0.0.1` as different sites.
 */
export async function startTestProvider(
  authentication: 'client_secret_post' | 'client_secret_basic' = 'client_secret_post',
  hostName: 'localhost' | '127.0.0.1' = '127.0.0.1',
): Promise<TestProvider> {
  const keys = generateKeyPairSync('rsa', { modulusLength: 2_048 })
  const foreign = generateKeyPairSync('rsa', { modulusLength: 2_048 })
  const secrets: string[] = []
  const requests = new Map<string, URLSearchParams>()
  let claims: Readonly<Record<string, unknown>> = {}
  let misbehaviour: Misbehaviour = {}

  function idToken(issuer: string, nonce: string | null): string {
    const now = Math.floor(Date.now() / 1_000)
    const parts = [
      base64url({ alg: 'RS256', kid: 'one', typ: 'JWT' }),
      base64url({
        iss: issuer,
        aud: CLIENT_ID,
        sub: 'subject-1',
        iat: now,
        exp: now + 300,
        nonce,
        ...claims,
      }),
    ].join('.')
    const { privateKey } = misbehaviour.hasForeignKey === true ? foreign : keys
    return `${parts}.${sign('RSA-SHA256', Buffer.from(parts), privateKey).toString('base64url')}`
  }

  function authorize(query: URLSearchParams, response: ServerResponse): void {
    const code = randomUUID()
    secrets.push(code)
    requests.set(code, query)
    const back = new URL(query.get('redirect_uri') ?? '')
    back.search = new URLSearchParams({
      code,
      state: query.get('state') ?? '',
      iss: issuer,
    }).toString()
    misbehaviour.callback?.(back.searchParams)
    response.writeHead(302, { Location: back.href }).end()
  }

  function isClient(header: string | undefined, form: URLSearchParams): boolean {
    if (authentication === 'client_secret_post')
      return form.get('client_id') === CLIENT_ID && form.get('client_secret') === CLIENT_SECRET
    const [id, secret] = Buffer.from(header?.replace('Basic ', '') ?? '', 'base64')
      .toString()
      .split(':')
      // The client id and the client secret are form-encoded (RFC 6749 §2.3.1).
      .map((part) => new URLSearchParams(`part=${part}`).get('part'))
    return id === CLIENT_ID && secret === CLIENT_SECRET
  }

  async function exchange(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const form = new URLSearchParams(await text(request))
    const known = requests.get(form.get('code') ?? '')
    requests.delete(form.get('code') ?? '')
    const challenge = createHash('sha256')
      .update(form.get('code_verifier') ?? '')
      .digest('base64url')
    if (misbehaviour.status !== undefined) return json(response, misbehaviour.status, {})
    if (!isClient(request.headers.authorization, form))
      return json(response, 401, { error: 'invalid_client' })
    if (
      known === undefined ||
      known.get('code_challenge_method') !== 'S256' ||
      known.get('code_challenge') !== challenge ||
      known.get('redirect_uri') !== form.get('redirect_uri')
    )
      return json(response, 400, { error: 'invalid_grant' })
    const tokens = {
      access_token: randomUUID(),
      refresh_token: randomUUID(),
      id_token: idToken(issuer, known.get('nonce')),
    }
    secrets.push(...Object.values(tokens))
    json(response, 200, { ...tokens, token_type: 'Bearer', expires_in: 300 })
  }

  const server = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '/', issuer)
    switch (pathname) {
      case '/.well-known/openid-configuration':
        return json(response, 200, {
          issuer,
          authorization_endpoint: `${issuer}/authorize`,
          token_endpoint: `${issuer}/token`,
          jwks_uri: `${issuer}/jwks`,
          ...(authentication === 'client_secret_post' && {
            token_endpoint_auth_methods_supported: ['client_secret_basic', authentication],
          }),
          response_types_supported: ['code'],
          subject_types_supported: ['public'],
          id_token_signing_alg_values_supported: ['RS256'],
          authorization_response_iss_parameter_supported: true,
        })
      case '/jwks':
        return json(response, 200, {
          keys: [
            { ...keys.publicKey.export({ format: 'jwk' }), kid: 'one', alg: 'RS256', use: 'sig' },
          ],
        })
      case '/authorize':
        return authorize(searchParams, response)
      case '/token':
        return void exchange(request, response)
      default:
        return json(response, 404, {})
    }
  }).listen(0, hostName)
  await once(server, 'listening')
  const issuer = `http://${hostName}:${(server.address() as AddressInfo).port}`
  return {
    issuer,
    secrets,
    signInAs(next, misbehaves = {}) {
      claims = next
      misbehaviour = misbehaves
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}
