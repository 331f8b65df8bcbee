const COMPANY_SCOPES = ['com.intuit.quickbooks.accounting', 'com.intuit.quickbooks.payment']

/**
 * Returns whether the callback and the id token name the company (as `realmId` and `realmid`). Users report that
 * Intuit's callback contains `realmId` only if an accounting or payment scope was requested. This sandbox assumes the
 * same rule for the id token.
 */
export const isCompanyNamed = (
  scope: readonly string[],
  { realmIdNeedsScope }: { readonly realmIdNeedsScope: boolean },
): boolean => !realmIdNeedsScope || scope.some((name) => COMPANY_SCOPES.includes(name))
