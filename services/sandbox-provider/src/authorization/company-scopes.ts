const COMPANY_SCOPES = ['com.intuit.quickbooks.accounting', 'com.intuit.quickbooks.payment']

/**
 * Returns whether the callback (`realmId`) and the id token (`realmid`) name the company. Users report that Intuit's
 * callback contains `realmId` only if an accounting or payment scope was requested. We assume the same for `realmid`.
 */
export const isCompanyNamed = (
  scope: readonly string[],
  { realmIdNeedsScope }: { readonly realmIdNeedsScope: boolean },
): boolean => !realmIdNeedsScope || scope.some((name) => COMPANY_SCOPES.includes(name))
