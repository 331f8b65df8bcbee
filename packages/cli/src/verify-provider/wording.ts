/**
 * Decides which parts of a response the report may contain. A report can be published in an issue, and a response may
 * contain tokens, names of companies, or control characters for a terminal.
 */
import type { ProviderProfile } from '@integration-host/shared/provider-profile/provider-profile'
import type { ProviderResponse } from './provider-call.ts'

/**
 * Returns at most 20 names of members, claims, headers or scopes as a sorted list. A text that is not in snake_case,
 * kebab-case or camelCase is replaced by `(a name not shown)`, because it may be a token. A token mixes digits and
 * letters, so it has none of these forms.
 */
export const names = (given: Iterable<string>): string =>
  [...new Set([...given].map((name) => (NAME.test(name) ? name : '(a name not shown)')))]
    .toSorted()
    .slice(0, 20)
    .join(', ')

const NAME = /^(?=.{1,60}$)([a-z]+([._-][a-z]+)*|[a-z]+([A-Z][a-z]+){1,4}|(RS|ES|PS|HS)\d{3}|S256)$/
const ERROR_CODE = /^[a-z][a-z_]{2,39}$/

/** Returns the `error` of an OAuth response (RFC 6749 §5.2) if it looks like an error code, otherwise `null`. */
export function errorCode(error: unknown): string | null {
  if (typeof error !== 'string') return null
  return ERROR_CODE.test(error) ? error : '(an error code not shown)'
}

/** Describes a response: `401, JSON, code 3200`; `400 invalid_grant, JSON`; `502, HTML`. */
export function described(response: ProviderResponse, profile: ProviderProfile): string {
  const error = errorCode(response.json?.['error'])
  const code = faultCode(response, profile)
  return [
    `${response.status}${error === null ? '' : ` ${error}`}`,
    formOf(response),
    ...(code === null ? [] : [`code ${code}`]),
  ].join(', ')
}

/** Returns the error code of an accounting API response without leading zeros; `null` if the body has no error code. */
export function faultCode({ text }: ProviderResponse, profile: ProviderProfile): string | null {
  const code = profile.accounting.faultOf(text)?.code.replace(/^0+/, '') ?? ''
  return code === '' ? null : code
}

export function formOf({ text, json }: ProviderResponse): string {
  const start = text.trimStart().slice(0, 200)
  if (start === '') return 'empty body'
  if (/^<(!doctype\s+)?html/i.test(start)) return 'HTML'
  if (start.startsWith('<')) return 'XML'
  if (json === null) return 'neither JSON nor XML'
  if ('fault' in json) return 'JSON with fault'
  return 'Fault' in json ? 'JSON with Fault' : 'JSON'
}

/** Returns an address without user, password and query. */
export function address(value: unknown): string {
  if (typeof value !== 'string' || !URL.canParse(value)) return '(not an address)'
  const { protocol, host, pathname } = new URL(value)
  return `${protocol}//${host}${pathname.replace(/\/$/, '')}`.slice(0, 100)
}

/** Returns the last three digits of a realm id, which are enough to distinguish two companies. */
export const maskedRealm = (realm: string): string =>
  realm.length >= 9 && /^\d+$/.test(realm) ? `…${realm.slice(-3)}` : '…'

/**
 * Redacts known secrets in a text. This redaction is a second protection, because the other functions of this file
 * already exclude secrets.
 */
export function createRedaction() {
  const secrets = new Set<string>()
  return {
    /** The minimum length of a secret that is redacted. A shorter secret would match parts of ordinary words. */
    add(...values: readonly (string | null | undefined)[]): void {
      for (const value of values) if (value && value.length >= 6) secrets.add(value)
    },
    hide(text: string): string {
      return [...secrets]
        .toSorted((a, b) => b.length - a.length)
        .reduce((shown, value) => shown.replaceAll(value, '[hidden]'), text)
    },
  }
}
export type Redaction = ReturnType<typeof createRedaction>
