import type { AccessTokenView, CredentialView } from '@integration-host/shared/contracts/credential'
import type { System } from './system.ts'

/** An answer of the token-service: what was asked for, or a problem with its code. */
export type Told<View> = Partial<View> & { readonly status: number; readonly code?: string }

/** What callers ask of the token-service about one company. */
export function credentialsOf(system: System) {
  const ask = async <View>(realm: string, path = '', init?: RequestInit): Promise<Told<View>> => {
    const url = `${system.url('token-service')}/credentials/ACC-${realm}${path}`
    const answer = await system.call(url, init)
    return { ...((await answer.json()) as Partial<View>), status: answer.status }
  }
  return {
    refresh: (realm: string, body: { readonly Version?: number }) =>
      ask<CredentialView>(realm, '/refresh', {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify(body),
      }),
    credential: (realm: string) => ask<CredentialView>(realm),
    token: (realm: string) => ask<AccessTokenView>(realm, '/token'),
  }
}
