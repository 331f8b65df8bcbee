import type { CredentialState } from '@integration-host/shared/contracts/credential'

/**
 * The words for the states of companies, which all pages use. They continue a sentence about a company. The program of
 * the browser cannot import values of the server, so it repeats the words, and the type makes sure that they are equal.
 */
export const companyStateTexts = {
  must_reconnect: 'must be reconnected',
  failing: 'cannot be refreshed now',
  expiring: 'ends soon',
  active: 'active',
} as const satisfies Record<CredentialState, string>

export type CompanyStateTexts = typeof companyStateTexts
