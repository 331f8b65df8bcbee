/** The sandbox provider without a server: its app is called directly. */
import { createApp } from '@integration-host/sandbox-provider/app'
import { emptyMemory } from '@integration-host/sandbox-provider/memory'
import { createHealth } from '@integration-host/shared/observability/health'
import { createMetrics } from '@integration-host/shared/observability/metrics'
import type { Logger } from '@integration-host/shared/observability/logger'
import { Secret } from '@integration-host/shared/secrets/secret'

const BASE = 'http://localhost'
const REDIRECT_URI = `${BASE}/callback`
const CLIENT = { id: 'integration-host', secret: new Secret('the-client-secret-of-the-test-host') }
const SCOPE = 'com.intuit.quickbooks.accounting'

export function createSandbox(logger: Logger, now: () => number) {
  const app = createApp({
    logger,
    health: createHealth(logger),
    metrics: createMetrics('sandbox-provider'),
    client: CLIENT,
    redirectUris: null,
    disconnectUrl: null,
    personality: 'intuit',
    // The scope of the test host does not request an id token, so none is signed.
    signer: { jwks: { keys: [] }, sign: () => Promise.reject(new TypeError('no key')) },
    addresses: () => ({ base: BASE, browser: BASE }),
    now,
    memory: emptyMemory(),
    changed() {},
  })

  /** Sends a request; resolves with `dropped` if the provider resets the connection. */
  async function send(path: string, init: RequestInit = {}): Promise<Response | 'dropped'> {
    let isDropped = false
    const socket = { resetAndDestroy: () => (isDropped = true) }
    const headers = new Headers(init.headers)
    headers.set('host', new URL(BASE).host)
    const request = new Request(BASE + path, { ...init, headers })
    const response = await app.fetch(request, { incoming: { socket } })
    return isDropped ? 'dropped' : response
  }

  return {
    send,
    /**
     * Sends a request to the control routes below `/sandbox`, and returns the body of the response, `null` if there is
     * none. @throws {Error} the provider rejects it.
     */
    async control(method: string, path: string, body: object = {}): Promise<unknown> {
      const response = await send(`/sandbox/${path}`, {
        method,
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      })
      const text = response === 'dropped' ? 'no response' : await response.text()
      if (response !== 'dropped' && response.ok)
        return text === '' ? null : (JSON.parse(text) as unknown)
      throw new Error(`the sandbox provider rejected ${method} /sandbox/${path}: ${text}`)
    },
    /** Sends a form to the token endpoint. */
    requestTokens(form: Readonly<Record<string, string>>) {
      const credentials = `${CLIENT.id}:${CLIENT.secret.reveal()}`
      return send('/oauth2/v1/tokens/bearer', {
        method: 'POST',
        headers: {
          authorization: `Basic ${Buffer.from(credentials).toString('base64')}`,
          'content-type': 'application/x-www-form-urlencoded',
          // Without this header in the request, Intuit's response does not contain the time at which the grant ends.
          'x-include-refresh-token-hard-expires-in': 'true',
        },
        body: new URLSearchParams({ redirect_uri: REDIRECT_URI, ...form }).toString(),
      })
    },
    /** Grants access to a company as its owner would. Returns the authorization code. */
    async authorize({
      realm,
      name,
    }: {
      readonly realm: string
      readonly name: string
    }): Promise<string> {
      const query = new URLSearchParams({
        client_id: CLIENT.id,
        redirect_uri: REDIRECT_URI,
        response_type: 'code',
        scope: SCOPE,
        state: 'test',
        sandbox_company: `${realm}:${name}`,
      })
      const response = await send(`/connect/oauth2?${query.toString()}`)
      const location = response === 'dropped' ? null : response.headers.get('location')
      const code = location === null ? null : new URL(location).searchParams.get('code')
      if (code !== null) return code
      throw new Error(`the sandbox provider did not connect the company ${realm}`)
    },
  }
}
export type Sandbox = ReturnType<typeof createSandbox>
