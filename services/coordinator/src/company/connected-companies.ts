/** The port to the list of companies that are connected, which token-service keeps. */
export interface ConnectedCompanies {
  /**
   * Returns one page of the companies whose credential can be used, in the order of their credential names. A company
   * that must be connected again is left out. `after` is `next` of the previous page, or `null` for the first page. A
   * page may have no realms although `next` is not `null`.
   *
   * @throws {IntegrationError} `token_service_unavailable` if token-service cannot be reached, or does not accept the
   * key of this service. The same call may succeed later.
   */
  page(after: string | null): Promise<CompanyPage>
  /**
   * Returns whether there is a credential of this realm, even if the company must be connected again.
   *
   * @throws {IntegrationError} `token_service_unavailable`
   */
  isConnected(realm: string): Promise<boolean>
}

export interface CompanyPage {
  readonly realms: readonly string[]
  /** The value of `after` for the next page; `null` if there is none. */
  readonly next: string | null
}
