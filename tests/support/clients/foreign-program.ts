/** Another program that has grants of the same application. It gets these grants directly from the sandbox provider. */
import { createHash, randomBytes } from 'node:crypto'
import { expect } from 'vitest'
import type { System } from '../system.ts'

/**
 * Authorizes the other program for a company. Resolves with the refresh token that the other program gets, and with the
 * authorization code that started the grant. `provider` is the URL of the provider; the default is the sandbox.
 */
export async function foreignGrant(
  system: System,
  realm: string,
  clientSecret: string,
  provider = system.url('sandbox-provider'),
): Promise<{ readonly token: string; readonly code: string }> {
  const redirectUri = `${system.url('token-service')}/callback`
  const verifier = randomBytes(32).toString('base64url')
  const consent = new URL(`${provider}/connect/oauth2`)
  const parameters = {
    client_id: 'integration-host',
    redirect_uri: redirectUri,
    response_type: 'code',
    scope: 'openid com.intuit.quickbooks.accounting',
    state: 'other-program',
    nonce: 'other-program',
    code_challenge: createHash('sha256').update(verifier).digest('base64url'),
    code_challenge_method: 'S256',
    sandbox_company: `${realm}:Company ${realm}`,
  }
  for (const [name, value] of Object.entries(parameters)) consent.searchParams.set(name, value)
  const granted = await fetch(consent, { redirect: 'manual' })
  const code = new URL(granted.headers.get('Location') ?? '').searchParams.get('code') ?? ''
  const basic = Buffer.from(`integration-host:${clientSecret}`).toString('base64')
  const response = await fetch(`${provider}/oauth2/v1/tokens/bearer`, {
    method: 'POST',
    headers: { Authorization: `Basic ${basic}` },
    body: new URLSearchParams({
      grant_type: 'authorization_code',
      code,
      redirect_uri: redirectUri,
      code_verifier: verifier,
    }),
  })
  const { refresh_token } = (await response.json()) as { refresh_token?: string }
  expect(refresh_token, `HTTP ${response.status}`).toBeTypeOf('string')
  return { token: refresh_token ?? '', code }
}
