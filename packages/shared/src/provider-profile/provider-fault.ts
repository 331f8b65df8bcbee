/** An error in a response body of the accounting API, and the error class of a run that fails with this error. */

export interface ProviderFault {
  /** The provider's own error code, such as `5020`; empty if the body contains no code. */
  readonly code: string
  /**
   * The error class of a run that fails with this error; `null` if the class follows from the HTTP
   * status.
   */
  readonly class: ProviderFaultClass | null
}

/** The classes of errors that only a person can resolve, with the remedy for each class. */
export const providerFaultClasses = {
  provider_permission_denied: {
    remedy:
      'The provider does not allow this call to the user who connected the company. Give that user the right, or reconnect the company as an administrator; if the whole company is rejected, check that its keys and the accounting address are of the same environment. Then resume the run.',
  },
  provider_subscription_ended: {
    remedy:
      "The company's subscription has ended or is suspended. Have its owner renew it, then resume the run.",
  },
  provider_environment_mixed: {
    remedy:
      'Keys and companies of the sandbox and of production are mixed. Check CLIENT_ID, DISCOVERY_URL and ACCOUNTING_URL, then resume the run.',
  },
  provider_duplicate_request: {
    remedy:
      'The provider has seen the requestid of this call before, so an earlier attempt was processed. Look up what it did; a step with confirm does so when the run is resumed.',
  },
  provider_fault: {
    remedy: 'The response has a success status, but its body is an error with this code.',
  },
} as const satisfies Readonly<Record<string, { readonly remedy: string }>>

export type ProviderFaultClass = keyof typeof providerFaultClasses
