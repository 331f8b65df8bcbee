/**
 * A token-service and a sandbox provider for benchmarks, each in a separate process. The token-service refreshes
 * its credentials at this provider.
 */
import { randomBytes } from 'node:crypto'
import setupBackends from '@integration-host/tests/backends'
import { type ServiceProcess, startSystem, type System } from '@integration-host/tests/system'

const CLIENT_ID = 'integration-host'
const SCOPE = 'openid com.intuit.quickbooks.accounting'

export interface Custody extends AsyncDisposable {
  readonly system: System
  /** The provider's token endpoint and the client credentials for it. */
  readonly client: {
    readonly tokenEndpoint: string
    readonly clientId: string
    readonly clientSecret: string
    readonly redirectUri: string
  }
  /** The key ring that encrypts the stored records (`CREDENTIAL_KEYS`). */
  readonly credentialKeys: string
  /** Starts token-service with the Redis of this benchmark, without waiting until the service is ready. */
  startTokenService(env?: Readonly<Record<string, string>>): ServiceProcess
  /** Starts another token-service on the same Redis. Resolves when it is ready. */
  startReplica(env: Readonly<Record<string, string>>): Promise<ServiceProcess>
  /** Returns an authorization code, as the provider sends it to the redirect URI after the user's consent. */
  authorize(realm: string): Promise<string>
  /** Makes token-service store a credential of the realm. */
  connect(realm: string): Promise<void>
  /** Calls a path below `/sandbox` at the provider. Resolves with the JSON of the response. */
  sandbox(method: 'GET' | 'PUT', path: string, body?: unknown): Promise<unknown>
}

/**
 * Starts the sandbox provider. The services use the machine's RabbitMQ with a separate prefix for the names of queues.
 *
 * @param checkout the folder of another checkout; if present, the services of that checkout are started
 */
export async function startCustody(redisUrl: string, checkout?: string): Promise<Custody> {
  await using opened = new AsyncDisposableStack()
  opened.defer(await setupBackends())
  const system = opened.use(await startSystem([], checkout === undefined ? {} : { checkout }))
  const credentialKeys = `k1:${randomBytes(32).toString('base64')}`
  const clientSecret = randomBytes(24).toString('base64url')
  const provider = system.url('sandbox-provider')
  const redirectUri = `${system.url('token-service')}/callback`
  system.start('sandbox-provider', { CLIENT_SECRET: clientSecret })
  await system.ready('sandbox-provider')

  async function authorize(realm: string): Promise<string> {
    const consent = new URL(`${provider}/connect/oauth2`)
    consent.search = new URLSearchParams({
      response_type: 'code',
      client_id: CLIENT_ID,
      redirect_uri: redirectUri,
      scope: SCOPE,
      state: 'bench',
      sandbox_company: `${realm}:Bench Company`,
    }).toString()
    const response = await fetch(consent, { redirect: 'manual' })
    return new URL(response.headers.get('Location') ?? '').searchParams.get('code') ?? ''
  }

  const settings = {
    REDIS_URL: redisUrl,
    REDIS_KEY_PREFIX: '',
    CLIENT_SECRET: clientSecret,
    CREDENTIAL_KEYS: credentialKeys,
  }
  const running = opened.move()
  return {
    system,
    client: {
      tokenEndpoint: `${provider}/oauth2/v1/tokens/bearer`,
      clientId: CLIENT_ID,
      clientSecret,
      redirectUri,
    },
    credentialKeys,
    startTokenService: (env = {}) => system.start('token-service', { ...settings, ...env }),
    startReplica: (env) => system.replica('token-service', { ...settings, ...env }),
    authorize,
    async connect(realm) {
      const response = await system.call(redirectUri, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({ RealmID: realm, Code: await authorize(realm) }),
      })
      if (!response.ok) throw new Error(`${realm} was not connected: ${await response.text()}`)
      await response.body?.cancel()
    },
    async sandbox(method, path, body) {
      const response = await fetch(`${provider}/sandbox/${path}`, {
        method,
        headers: { 'Content-Type': 'application/json' },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      })
      return response.json()
    },
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  }
}
