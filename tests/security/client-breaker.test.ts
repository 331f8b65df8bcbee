/**
 * Browsers without a key send made-up codes to `/callback`. The provider responds to a made-up code in the same way as
 * to wrong client credentials. Nevertheless, token-service must continue to refresh the connected companies.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sandboxClient } from '../support/clients/sandbox.ts'
import { tokenServiceClient } from '../support/clients/token-service.ts'
import { connectCompany } from '../support/clients/user-actions.ts'
import {
  type RejectedCall,
  startTokenEndpointProxy,
  type TokenEndpointProxy,
} from '../support/fakes/token-endpoint-proxy.ts'
import { startSystem, type System } from '../support/system.ts'

const REALMS = ['9341461000001', '9341461000002', '9341461000003']
const MADE_UP = 'made-up-code'

/** How the provider responds to a made-up code. */
let rejection: RejectedCall
let system: System
let tokenEndpoint: TokenEndpointProxy

beforeAll(async () => {
  system = await startSystem(['sandbox-provider'])
  tokenEndpoint = await startTokenEndpointProxy(system.url('sandbox-provider'), (form) =>
    form.get('code')?.startsWith(MADE_UP) ? rejection : null,
  )
  system.start('token-service', { DISCOVERY_URL: tokenEndpoint.discoveryUrl })
  await system.ready('token-service')
  for (const realm of REALMS) expect((await connectCompany(system, realm)).status).toBe(302)
})
afterAll(async () => {
  await tokenEndpoint[Symbol.asyncDispose]()
  await system[Symbol.asyncDispose]()
})

/** Starts an authorization as a browser does, and ends it with a code that the provider has never issued. */
async function callbackWithMadeUpCode(suffix: string): Promise<number> {
  const started = await fetch(`${system.url('token-service')}/authorize`, { redirect: 'manual' })
  const cookie = started.headers.getSetCookie().map((header) => header.split(';')[0])
  const state = new URL(started.headers.get('Location') ?? '').searchParams.get('state') ?? ''
  const callback = new URL(`${system.url('token-service')}/callback`)
  callback.search = new URLSearchParams({
    code: `${MADE_UP}-${suffix}`,
    state,
    realmId: '9341461999999',
  }).toString()
  const { status } = await fetch(callback, {
    redirect: 'manual',
    headers: { Cookie: cookie.join('; ') },
  })
  return status
}

describe('token-service at a provider with the same response to an unknown code and to wrong client credentials', () => {
  it.each([
    ['401 invalid_client', { status: 401, body: '{"error":"invalid_client"}' }],
    ['401 without a known error code', { status: 401, body: '{"error":"invalid_code"}' }],
  ])(
    'token-service refreshes all companies while the provider rejects made-up codes of browsers with %s',
    async (_, rejected) => {
      rejection = rejected
      const client = tokenServiceClient(system)
      const sandbox = sandboxClient(system)
      for (const [round, realm] of REALMS.entries()) {
        // The provider rejects a made-up code before each refresh, so that the refresh directly follows a rejected
        // call.
        expect(await callbackWithMadeUpCode(`${rejected.body.length}-${round}`)).toBe(502)
        const before = (await sandbox.calls(realm)).granted
        const { status } = await client.refresh(realm, {})
        expect([realm, status]).toEqual([realm, 200])
        expect((await sandbox.calls(realm)).granted).toBe(before + 1)
      }
      const metrics = await (await fetch(`${system.url('token-service')}/metrics`)).text()
      expect(metrics).toMatch(/^provider_client_refused(?:{[^}]*})? 0$/m)
    },
  )
})
