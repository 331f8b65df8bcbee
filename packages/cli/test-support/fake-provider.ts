/**
 * A fake provider over HTTP that behaves as Intuit documents it. Members, headers, claims and error texts of the
 * responses contain marker values (canaries), which must not appear in a report.
 */
import { generateKeyPairSync, randomBytes, sign } from 'node:crypto'
import {
  type FakeResponse,
  type ReceivedRequest,
  type FakeService,
  startFakeService,
} from './fake-service.ts'

const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2_048 })
const encoded = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url')

export const REALM = '9341453908059889'

export interface FakeProvider extends AsyncDisposable {
  readonly url: string
  readonly requests: FakeService['requests']
  /** The values that must not appear in a report. */
  readonly canaries: ReadonlySet<string>
  /** The authorization code in every callback. */
  readonly code: string
  /** Replaces the response of a route, such as `POST /token`; `undefined` restores the default response. */
  override(route: string, respond: (request: ReceivedRequest) => FakeResponse | undefined): void
}

export async function startFakeProvider(): Promise<FakeProvider> {
  const canaries = new Set<string>([REALM])
  const overrides = new Map<string, (request: ReceivedRequest) => FakeResponse | undefined>()
  const canary = (kind: string): string => {
    const value = `${kind}-canary-${randomBytes(9).toString('base64url')}9`
    canaries.add(value)
    return value
  }
  let refreshToken = canary('refresh')
  let isRevoked = false
  const company = canary('Company')
  const kid = canary('kid')
  const code = canary('code')

  function idToken(): string {
    const seconds = Math.floor(Date.now() / 1_000)
    const claims = {
      sub: canary('subject'),
      aud: ['client-id-canary-1'],
      realmid: REALM,
      auth_time: seconds,
      iss: `${service.url}/op/v1`,
      iat: seconds,
      exp: seconds + 3_600,
      email: `${canary('email')}@example.com`,
    }
    const signed = `${encoded({ kid, alg: 'RS256' })}.${encoded(claims)}`
    const token = `${signed}.${sign('RSA-SHA256', Buffer.from(signed), privateKey).toString('base64url')}`
    for (const part of [token, ...token.split('.').slice(1)]) canaries.add(part)
    return token
  }

  const error = (name: string): FakeResponse => ({
    status: 400,
    body: { error: name, error_description: canary('description') },
  })
  const tokens = (): FakeResponse => ({
    body: {
      token_type: 'bearer',
      access_token: canary('access'),
      refresh_token: refreshToken,
      expires_in: 3_600,
      x_refresh_token_expires_in: 8_726_400,
      x_refresh_token_hard_expires_in: 157_680_000,
      id_token: idToken(),
      [canary('member')]: canary('value'),
    },
  })

  const usual: Readonly<Record<string, (request: ReceivedRequest) => FakeResponse>> = {
    'GET /discovery': () => ({
      body: {
        issuer: `${service.url}/op/v1`,
        authorization_endpoint: `${service.url}/connect/oauth2`,
        token_endpoint: `${service.url}/oauth2/v1/tokens/bearer`,
        userinfo_endpoint: `${service.url}/v1/openid_connect/userinfo`,
        revocation_endpoint: `${service.url}/v2/oauth2/tokens/revoke`,
        jwks_uri: `${service.url}/op/v1/jwks`,
        accounting_url: `${service.url}/accounting`,
        [canary('member')]: canary('value'),
        scopes_supported: [canary('scope')],
      },
    }),
    'GET /op/v1/jwks': () => ({
      body: { keys: [{ ...publicKey.export({ format: 'jwk' }), kid, note: canary('note') }] },
    }),
    'GET /connect/oauth2': ({ query }) => {
      for (const name of ['state', 'nonce']) canaries.add(query.get(name) ?? '')
      const callback = new URL(query.get('redirect_uri') ?? '')
      const parameters = { code, state: query.get('state') ?? '', realmId: REALM }
      for (const [name, value] of Object.entries(parameters)) callback.searchParams.set(name, value)
      callback.searchParams.set(canary('parameter'), canary('value'))
      return { status: 302, headers: { Location: callback.href } }
    },
    'POST /oauth2/v1/tokens/bearer': ({ body }) => {
      if (body['grant_type'] === 'authorization_code') {
        if (body['code'] !== code) return error('invalid_grant')
        isRevoked = false
        return tokens()
      }
      if (isRevoked || body['refresh_token'] !== refreshToken) return error('invalid_grant')
      refreshToken = canary('refresh')
      return tokens()
    },
    'POST /v2/oauth2/tokens/revoke': () => {
      if (isRevoked) return { status: 400, body: '' }
      isRevoked = true
      return { body: canary('revoked') }
    },
    [`GET /accounting/v3/company/${REALM}/query`]: ({ headers }) =>
      canaries.has(String(headers.authorization).replace('Bearer ', ''))
        ? { body: { QueryResponse: { CompanyInfo: [{ CompanyName: company }] } } }
        : {
            status: 401,
            body: { fault: { error: [{ code: '3200', detail: canary('detail') }], type: 'x' } },
          },
    [`POST /accounting/v3/company/${REALM}/customer`]: ({ body }) => ({
      body: {
        Customer: {
          Id: '58',
          SyncToken: '0',
          Active: body['Active'] ?? true,
          CompanyName: canary('Customer'),
        },
      },
    }),
  }

  const respond = (request: ReceivedRequest): FakeResponse => {
    const response = overrides.get(request.route)?.(request) ??
      usual[request.route]?.(request) ?? { status: 404, body: canary('lost') }
    return {
      ...response,
      headers: {
        'X-RateLimit-Note': canary('limit'),
        'X-Note': canary('header'),
        ...response.headers,
      },
    }
  }
  const routes = Object.fromEntries(Object.keys(usual).map((route) => [route, respond]))
  const service = await startFakeService(routes, null)
  return {
    url: service.url,
    requests: service.requests,
    canaries,
    code,
    override: (route, respondTo) => void overrides.set(route, respondTo),
    [Symbol.asyncDispose]: () => service[Symbol.asyncDispose](),
  }
}
