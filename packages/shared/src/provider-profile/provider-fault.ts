/**
 * An error in a response body of the accounting API, and what becomes of it: the reason of a failed run.
 *
 * The reason begins with the provider's code and message, such as `6240 Duplicate Name Exists Error`, and ends with a
 * colon. So {@link providerErrorOf} finds them in a stored error text, and equal reasons can be counted. They are texts
 * from outside.
 */
import { visibleText } from '../contracts/text.ts'

export interface ProviderError {
  /** The provider's own error code, such as `5020`; empty if the body contains no code. */
  readonly code: string
  /** The provider's message and details on one line each, with a maximum length; empty if there are none. */
  readonly message: string
  readonly detail: string
}

const MAX_MESSAGE = 100
const MAX_DETAIL = 400

/** Returns an error with the texts that a provider has sent, which may be anything. */
export const providerError = (code: string, message = '', detail = ''): ProviderError => ({
  code,
  message: visibleText(message, MAX_MESSAGE),
  // Intuit ends some details with `: null`.
  detail: visibleText(detail, MAX_DETAIL)
    .replace(/: null$/, '')
    .trimEnd(),
})

export interface ProviderFault extends ProviderError {
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
  books_closed: {
    remedy:
      'Have the period opened or its closing date moved, then retry the run. It sends nothing before.',
  },
  provider_fault: {
    remedy: 'The response has a success status, but its body is an error with this code.',
  },
} as const satisfies Readonly<Record<string, { readonly remedy: string }>>

export type ProviderFaultClass = keyof typeof providerFaultClasses

/** Returns the code and the message of an error, such as `6240 Duplicate Name Exists Error`; empty without a code. */
export const codeAndMessage = ({ code, message }: ProviderError): string =>
  code === '' ? '' : `${code} ${message.split(':', 1)[0]?.trim() ?? ''}`.trim()

/** Returns the error text of a call that the provider has answered with an error. `call` says what was answered. */
export function providerReason(error: ProviderError, call: string): string {
  const reason = codeAndMessage(error)
  const detail = error.detail || (reason === '' ? error.message : '')
  if (reason === '') return detail === '' ? call : `${call} and an error: ${detail}`
  return detail === '' ? `${reason}: ${call}` : `${reason}: ${detail} (${call})`
}

/** The beginning of a stored error text that {@link providerReason} has written. The coordinator counts by it in SQL. */
export const PROVIDER_ERROR = '^[0-9]{1,9}(?: [^:]{1,120})?(?=: )'

/** The error classes of runs that failed with the response of a provider. The coordinator finds them in SQL, too. */
export const PROVIDER_CLASS = '^(?:http_[0-9]{3}$|provider_|books_closed$)'

export const isOfProvider = (errorClass: string | null): boolean =>
  errorClass !== null && new RegExp(PROVIDER_CLASS).test(errorClass)

/** Returns the provider's code and message in the error of a run; `null` if its error is not the provider's. */
export const providerErrorOf = (run: {
  readonly ErrorClass: string | null
  readonly LastError: string | null
}): string | null =>
  isOfProvider(run.ErrorClass)
    ? (new RegExp(PROVIDER_ERROR).exec(run.LastError ?? '')?.[0] ?? null)
    : null

/** Returns the values of the filter `class` that can be the provider's code, such as `6240`. */
export const providerCodesIn = (classes: readonly string[]): readonly string[] =>
  classes.filter((value) => /^\d{1,9}$/.test(value))

/** Returns the provider's code in a text that begins with it, such as `6240 Duplicate Name Exists Error`. */
export const providerCode = (error: string | null): string | null =>
  /^\d+/.exec(error ?? '')?.[0] ?? null

const BOOKS_CLOSED =
  'Queue a copy with a later date and cancel this run, or have the period opened and retry it.'

/** What a person should do about errors of Intuit that have no error class of their own, by code. */
const REMEDIES: Readonly<Record<string, string>> = {
  '610':
    'The object does not exist, or is inactive. Make it active at the provider and resume, or queue a copy with another object.',
  '2020': 'A member is missing in the data. Queue a copy with it.',
  '2500':
    'The data names an object that the company does not have. Queue a copy with an existing one.',
  '5010':
    'The object was changed in the meantime. Replay the run, so that it reads the object again.',
  '6140':
    'Another document has this number. Queue a copy with another number, or allow duplicate numbers in the settings of the company and resume.',
  '6200': BOOKS_CLOSED,
  '6210': BOOKS_CLOSED,
  '6240':
    'Another customer, vendor or employee has this name. Use the existing one, or queue a copy with another name.',
}

/** Returns what a person should do about an error in the form of {@link codeAndMessage}; `null` if that is not known. */
export const providerRemedy = (error: string | null): string | null =>
  REMEDIES[providerCode(error)?.replace(/^0+/, '') ?? ''] ?? null
