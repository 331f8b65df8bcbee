import type { AccessTokenView, CredentialView } from '@integration-host/shared/contracts/credential'
import { postJson } from '@integration-host/shared/test-support/post-json'
import type { System } from '../system.ts'

/** A response of token-service: either the requested view, or the code of a problem document. */
export type ViewOrProblem<View> = Partial<View> & {
  readonly status: number
  readonly code?: string
}

/** Returns a client of token-service's API. */
export function tokenServiceClient(system: System) {
  const request = async <View>(
    realm: string,
    path = '',
    init?: RequestInit,
  ): Promise<ViewOrProblem<View>> => {
    const url = `${system.url('token-service')}/credentials/ACC-${realm}${path}`
    const response = await system.call(url, init)
    return { ...((await response.json()) as Partial<View>), status: response.status }
  }
  return {
    refresh: (realm: string, body: { readonly Version?: number }) =>
      request<CredentialView>(realm, '/refresh', postJson(body)),
    credential: (realm: string) => request<CredentialView>(realm),
    token: (realm: string) => request<AccessTokenView>(realm, '/token'),
  }
}
