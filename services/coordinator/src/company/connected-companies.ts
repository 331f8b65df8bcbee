/** The port to token-service's list of connected companies. */
export interface ConnectedCompanies {
  /**
   * Returns one page of the companies with a usable credential, in the order of the credential names. The page leaves
   * out companies that must be connected again. `after` is `next` of the previous page, or `null` for the first page. A
   * page may have no realms although `next` is not `null`.
   *
   * @throws {IntegrationError} `token_service_unavailable` if token-service cannot be reached, or does not accept the
   *   key of this service. The same call may succeed later.
   */
  page(after: string | null): Promise<CompanyPage>
  /**
   * Returns whether a credential of this realm exists. The credential may be unusable, so that the company must be
   * connected again.
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
