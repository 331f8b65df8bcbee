const COMPANY_SCOPES = ['com.intuit.quickbooks.accounting', 'com.intuit.quickbooks.payment']

/**
 * Whether the callback (`realmId`) and the id token (`realmid`) name the company. Users report that Intuit's
 * callback does so only for an accounting or payment scope; that its id token follows is our assumption.
 */
export const isCompanyNamed = (
  scope: readonly string[],
  { realmIdNeedsScope }: { readonly realmIdNeedsScope: boolean },
): boolean => !realmIdNeedsScope || scope.some((name) => COMPANY_SCOPES.includes(name))
