/** Revokes a refresh token at the provider as RFC 7009 specifies, with the deviations of the provider profile. */
import { tokenRevocation } from 'openid-client'
import type { ProxyFor } from '@integration-host/shared/http/forward-proxy/forward-proxy'
import type { ProviderProfile } from '@integration-host/shared/provider-profile/provider-profile'
import type { Secret } from '@integration-host/shared/secrets/secret'
import type { ClientSecrets } from './client-secrets.ts'
import {
  configure,
  type LibraryRequest,
  sendLibraryRequest,
  toLibraryResponse,
} from './configuration.ts'
import type { DiscoveredProvider } from './discovery.ts'
import { isSuccess } from './send-request.ts'

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
  if (provider?.metadata.revocation_endpoint === undefined) return false
  for (const secret of clientSecrets.inOrder) {
    let isClientRejected = false
    const configuration = configure(provider, clientId, secret, async (url, outgoing) => {
      const response = await sendLibraryRequest(
        inProfile(outgoing, profile),
        url,
        deadlineMs,
        proxyFor,
      )
      isClientRejected = response.status === 401
      // The status alone confirms the revocation, whatever the body is and even if its end is missing. According to RFC
      // 7009 §2.2, the revocation of an invalid token also succeeds.
      const isDone =
        isSuccess(response.status) ||
        (response.cutOff === null && profile.revocation.isAlreadyRevoked(response))
      return isDone ? new Response(null, { status: 200 }) : toLibraryResponse(response)
    })
    try {
      await tokenRevocation(configuration, refreshToken.reveal(), {
        token_type_hint: 'refresh_token',
      })
      return true
    } catch {
      // The revocation is not confirmed: the provider rejected the request or is unavailable.
    }
    if (!isClientRejected) return false
  }
  return false
}

/** Returns the request with a form body (RFC 7009 §2.1), or with a JSON body if the provider profile requires JSON. */
function inProfile(form: LibraryRequest, { revocation }: ProviderProfile): LibraryRequest {
  if (revocation.body === 'form') return form
  const token = new URLSearchParams(String(form.body as URLSearchParams)).get('token')
  return {
    ...form,
    headers: { ...form.headers, 'content-type': 'application/json', accept: 'application/json' },
    body: JSON.stringify({ token }),
  }
}
