import type { CredentialState } from '@integration-host/shared/contracts/credential'

/** The words for the states of companies, which all pages use. They continue a sentence about a company. */
export const companyStateTexts = {
  must_reconnect: 'must be reconnected',
  failing: 'cannot be refreshed now',
  expiring: 'ends soon',
  active: 'active',
} as const satisfies Record<CredentialState, string>
