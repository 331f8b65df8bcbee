import type { Clock } from '@integration-host/shared/process/clock'
import { beforeAll, beforeEach } from 'vitest'
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { readConfig } from '../src/config.ts'
import type { CountersView } from '../src/control/counters.ts'
import { startSandboxProvider } from '../src/service.ts'

export const CLIENT_ID = 'app:1 +%'
export const CLIENT_SECRET = 'p%ss:w+rd é'
export const REDIRECT_URI = 'http://127.0.0.1:9/callback'
export const REALM = '9341453908059889'
const SCOPE = 'openid com.intuit.quickbooks.accounting'

export interface Tokens {
  readonly access_token: string
  readonly refresh_token: string
  readonly id_token?: string
  readonly expires_in: number
}

/** A sandbox provider on an unused port that tests call over HTTP. Tests can advance its clock. */
export interface ProviderFixture extends AsyncDisposable {
  readonly url: string
  now(): number
  moveTime(ms: number): void
  /**
   * Returns the URL of a valid authorization request. `parameters` overrides single parameters; the value `null`
   * removes a parameter.
   */
  authorizeUrl(parameters?: Readonly<Record<string, string | null>>): string
  /**
   * Obtains an authorization code for the realm with the parameter `sandbox_company`, which skips the authorization
   * page.
   */
  code(realm?: string, parameters?: Readonly<Record<string, string>>): Promise<string>
  token(
    form: Readonly<Record<string, string>>,
    headers?: Readonly<Record<string, string>>,
  ): Promise<Response>
  exchange(code: string, form?: Readonly<Record<string, string>>): Promise<Response>
  refresh(refreshToken: string): Promise<Response>
  /** Connects the company and returns the tokens of the code exchange. */
  tokens(realm?: string): Promise<Tokens>
  api(path: string, accessToken: string, init?: RequestInit): Promise<Response>
  sandbox(method: string, path: string, body?: unknown): Promise<Response>
  counters(): Promise<CountersView>
}

/**
 * Returns an HTTP Basic header value. The client id and the secret are form-encoded before they are joined (RFC 6749
 * §2.3.1).
 */
export const basic = (id: string, secret: string): string =>
  `Basic ${Buffer.from([id, secret].map((part) => new URLSearchParams({ v: part }).toString().slice(2)).join(':')).toString('base64')}`

export async function startProvider(
  env: Readonly<Record<string, string>> = {},
  clock?: Clock,
): Promise<ProviderFixture> {
  const logger = createLogger('sandbox-provider', 'silent')
  let now = Date.now()
  const service = await startSandboxProvider(
    readConfig({ PORT: '0', CLIENT_ID, CLIENT_SECRET, ...env }),
    { logger, health: createHealth(logger), now: () => now, ...(clock && { clock }) },
  )
  const { url } = service
  const provider: ProviderFixture = {
    url,
    now: () => now,
    moveTime: (ms) => void (now += ms),
    authorizeUrl(parameters = {}) {
      const all = {
        client_id: CLIENT_ID,
        redirect_uri: REDIRECT_URI,
        response_type: 'code',
        scope: SCOPE,
        state: 'a state',
        ...parameters,
      }
      const target = new URL('/connect/oauth2', url)
      for (const [name, value] of Object.entries(all)) {
        if (value !== null) target.searchParams.set(name, value)
      }
      return target.href
    },
    async code(realm = REALM, parameters = {}) {
      const response = await fetch(
        provider.authorizeUrl({ sandbox_company: realm, ...parameters }),
        {
          redirect: 'manual',
        },
      )
      return new URL(response.headers.get('Location') ?? '').searchParams.get('code') ?? ''
    },
    token: (form, headers = {}) =>
      fetch(`${url}/oauth2/v1/tokens/bearer`, {
        method: 'POST',
        headers: { Authorization: basic(CLIENT_ID, CLIENT_SECRET), ...headers },
        body: new URLSearchParams(form),
      }),
    exchange: (code, form = {}) =>
      provider.token({
        grant_type: 'authorization_code',
        code,
        redirect_uri: REDIRECT_URI,
        ...form,
      }),
    refresh: (refreshToken) =>
      provider.token({
        grant_type: 'refresh_token',
        refresh_token: refreshToken,
        redirect_uri: REDIRECT_URI,
      }),
    tokens: async (realm) =>
      (await (await provider.exchange(await provider.code(realm))).json()) as Tokens,
    api: (path, accessToken, init = {}) =>
      fetch(`${url}${path}`, {
        ...init,
        headers: {
          Accept: 'application/json',
          ...(init.headers as Record<string, string>),
          Authorization: `Bearer ${accessToken}`,
        },
      }),
    sandbox: (method, path, body) =>
      fetch(`${url}/sandbox/${path}`, {
        method,
        headers: { 'Content-Type': 'application/json' },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      }),
    counters: async () =>
      (await (await provider.sandbox('GET', 'counters')).json()) as CountersView,
    [Symbol.asyncDispose]: () => service[Symbol.asyncDispose](),
  }
  return provider
}

/** Starts a provider for the tests of a file, and resets it before each of them. */
export function useProvider(): ProviderFixture {
  const provider = {} as ProviderFixture // its members are assigned before the first test
  beforeAll(async () => {
    Object.assign(provider, await startProvider())
    return () => provider[Symbol.asyncDispose]()
  })
  beforeEach(async () => {
    await provider.sandbox('POST', 'reset')
  })
  return provider
}
