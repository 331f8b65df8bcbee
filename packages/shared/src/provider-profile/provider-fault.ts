/** An error of the accounting API as its response body tells it, and what it means for a run. */

export interface ProviderFault {
  /** The provider's own error code, such as `5020`; empty if the body has none. */
  readonly code: string
  /** What the run's `ErrorClass` becomes; `null`: the HTTP status says enough. */
  readonly class: ProviderFaultClass | null
}

/** Errors that only a person can fix, whatever their HTTP status, with what that person does. */
export const providerFaultClasses = {
  provider_permission_denied:
    'The user who connected the company may not do this. Give that user the right, or reconnect the company as an administrator, then resume the run.',
  provider_subscription_ended:
    "The company's subscription has ended or is suspended. Have its owner renew it, then resume the run.",
  provider_environment_mixed:
    'Keys and companies of the sandbox and of production are mixed. Check CLIENT_ID, DISCOVERY_URL and ACCOUNTING_URL, then resume the run.',
  provider_fault:
    'The response has status 200 but its body is an error. The code in the message names it.',
} as const satisfies Readonly<Record<string, string>>

export type ProviderFaultClass = keyof typeof providerFaultClasses
