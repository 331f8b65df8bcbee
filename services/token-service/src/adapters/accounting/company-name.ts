import type { ProxyFor } from '@integration-host/shared/http/forward-proxy/forward-proxy'
import type { ProviderProfile } from '@integration-host/shared/provider-profile/provider-profile'
import type { ReadCompanyName } from '../../credential/company-names.ts'
import type { Discovery } from '../openid/discovery.ts'
import { isSuccess, NoResponse, sendRequest } from '../openid/send-request.ts'

export interface CompanyNameDeps {
  readonly profile: ProviderProfile['accounting']
  /** The setting `ACCOUNTING_URL`; if it is absent, the profile knows the address. */
  readonly accountingUrl: string | undefined
  readonly discovery: Pick<Discovery, 'current'>
  readonly proxyFor: ProxyFor
}

const DEADLINE_MS = 10_000

/**
 * Returns the function that reads the name of a company from the accounting API; `null` if the profile of the provider
 * does not know how.
 */
export function createCompanyNameReader(deps: CompanyNameDeps): ReadCompanyName | null {
  const { profile, accountingUrl, discovery, proxyFor } = deps
  const { companyName } = profile
  if (companyName === null) return null

  async function baseUrl(): Promise<string | null> {
    const metadata = (await discovery.current())?.metadata
    return metadata === undefined ? null : profile.addressOf(metadata)
  }

  return async (realm, accessToken) => {
    const base = accountingUrl ?? (await baseUrl())
    if (base === null) return undefined
    const url = new URL(base + companyName.pathOf(realm))
    const headers = {
      accept: 'application/json',
      authorization: `Bearer ${accessToken.reveal()}`,
    }
    try {
      const request = { method: 'GET', headers, body: null, deadlineMs: DEADLINE_MS }
      const { status, text, cutOff } = await sendRequest(url, request, proxyFor)
      return isSuccess(status) && cutOff === null ? companyName.nameOf(text) : null
    } catch (error) {
      if (error instanceof NoResponse) return null
      throw error
    }
  }
}
