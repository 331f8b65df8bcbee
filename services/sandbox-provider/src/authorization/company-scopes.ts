const COMPANY_SCOPES = ['com.intuit.quickbooks.accounting', 'com.intuit.quickbooks.payment']

/**
 * Returns whether the callback contains the company (as `realmId`) and the id token contains it too (as `realmid`).
 * Users report that Intuit's callback contains `realmId` only if an accounting or payment scope was requested. We
 * assume the same rule for the id token.
 */
export const isCompanyNamed = (
  scope: readonly string[],
  { realmIdNeedsScope }: { readonly realmIdNeedsScope: boolean },
): boolean => !realmIdNeedsScope || scope.some((name) => COMPANY_SCOPES.includes(name))
