/** Revokes a refresh token at the provider as RFC 7009 specifies, with the deviations of the provider profile. */
import type { ProxyFor } from '@integration-host/shared/http/forward-proxy/forward-proxy'
import type { ProviderProfile } from '@integration-host/shared/provider-profile/provider-profile'
import type { Secret } from '@integration-host/shared/secrets/secret'
import { basicAuthorization } from './basic-authorization.ts'
import type { ClientSecrets } from './client-secrets.ts'
import type { DiscoveredProvider } from './discovery.ts'
import { isSuccess, sendRequest } from './send-request.ts'

/**
 * Returns `true` if the provider confirmed that the grant has ended, whether by this request or earlier. Tries the next
 * client secret only after a 401. Never throws.
 */
export async function revoke(
  provider: DiscoveredProvider | null,
  refreshToken: Secret,
  options: {
    readonly profile: ProviderProfile
    readonly clientId: string
    readonly clientSecrets: ClientSecrets
    /** The timeout of each request, in milliseconds. */
    readonly deadlineMs: number
    readonly proxyFor: ProxyFor
  },
): Promise<boolean> {
  const { profile, clientId, clientSecrets, deadlineMs, proxyFor } = options
  const endpoint = provider?.metadata.revocation_endpoint
  if (endpoint === undefined) return false
  const { contentType, body } = bodyFor(profile, refreshToken.reveal())
  for (const secret of clientSecrets.inOrder) {
    const headers = {
      accept: 'application/json',
      authorization: basicAuthorization(clientId, secret),
      'content-type': contentType,
      'user-agent': 'integration-host',
    }
    const request = { method: 'POST', headers, body, deadlineMs }
    const response = await sendRequest(new URL(endpoint), request, proxyFor).catch(() => null)
    if (response === null) return false
    // The status alone confirms the revocation, whatever the body is and even if its end is missing. According to RFC
    // 7009 §2.2, the revocation of an invalid token also succeeds.
    if (isSuccess(response.status)) return true
    if (response.cutOff === null && profile.revocation.isAlreadyRevoked(response)) return true
    if (response.status !== 401) return false
  }
  return false
}

/** Returns the body of the request: a form (RFC 7009 §2.1), or JSON if the provider profile requires JSON. */
const bodyFor = ({ revocation }: ProviderProfile, token: string) =>
  revocation.body === 'form'
    ? {
        contentType: 'application/x-www-form-urlencoded;charset=UTF-8',
        body: new URLSearchParams({ token, token_type_hint: 'refresh_token' }).toString(),
      }
    : { contentType: 'application/json', body: JSON.stringify({ token }) }
