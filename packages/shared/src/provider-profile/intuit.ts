/**
 * The profile of Intuit (QuickBooks Online) according to its documentation. For each assumption, docs/intuit.md lists
 * the source and the test, and whether the assumption was verified against the live service.
 */
import { DOCUMENT_LIMITS, parseJson } from '../json.ts'
import {
  providerError,
  type ProviderError,
  type ProviderFault,
  type ProviderFaultClass,
} from './provider-fault.ts'
import type { ProviderProfile } from './provider-profile.ts'

const ISSUER = 'https://oauth.platform.intuit.com/op/v1'
const MINUTE_MS = 60_000
const HOUR_MS = 60 * MINUTE_MS

export const intuit: ProviderProfile = {
  name: 'intuit',
  authorization: {
    // No nonce is required, because Intuit does not list `nonce` in `claims_supported`, and none of Intuit's sample id
    // tokens contains a nonce.
    isNonceRequired: false,
    realmClaim: 'realmid',
    realmScopes: ['com.intuit.quickbooks.accounting', 'com.intuit.quickbooks.payment'],
  },
  token: {
    // A grant ends at a certain time, however often it was refreshed. Intuit adds this time to the token response only
    // if the request has this header.
    requestHeaders: { 'x-include-refresh-token-hard-expires-in': 'true' },
    idleExpiryMember: 'x_refresh_token_expires_in',
    hardExpiryMember: 'x_refresh_token_hard_expires_in',
  },
  grant: {
    idleLimitDays: 100,
    // Intuit's documents disagree on whether the previous refresh token remains valid for a grace period. The older
    // documents say 24 hours.
    previousTokenGraceMs: 24 * HOUR_MS,
    // The delays between the attempts after an `invalid_grant` response. They add up to one day, because according to
    // Intuit's authorization FAQ an outage may cause this response.
    rejectedGrantRetryDelaysMs: [5 * MINUTE_MS, HOUR_MS, 6 * HOUR_MS, 17 * HOUR_MS],
  },
  revocation: {
    body: 'json',
    // Intuit responds to a second revocation with 400 and an empty body.
    isAlreadyRevoked: ({ status, text }) => status === 400 && text.trim() === '',
  },
  accounting: {
    addressOf: ({ issuer, userinfo_endpoint: userinfo }) => {
      if (issuer !== ISSUER) return null
      // The discovery documents of sandbox and production have the same issuer. They differ only in
      // `userinfo_endpoint`.
      const host = URL.parse(String(userinfo))?.hostname ?? ''
      if (host.startsWith('sandbox-accounts.')) return 'https://sandbox-quickbooks.api.intuit.com'
      // Production is never the default. If the discovery document is of neither environment, an operator must set
      // ACCOUNTING_URL.
      return host.startsWith('accounts.') ? 'https://quickbooks.api.intuit.com' : null
    },
    repeatablePost: { in: 'query', name: 'requestid', maxLengthWithItemId: 50 },
    // The body of a POST may be a query statement, which only reads data.
    isReadingPost: (path) => /^\/v3\/company\/[^/]+\/query\/?(?:\?|$)/.test(path),
    limits: {
      calls: { perSecond: 10, perMinute: 500, concurrent: 10 },
      batchesPerMinute: 40,
      coolDownSeconds: 60,
    },
    faultOf,
    // Intuit ends a call after 120 s. How soon queries find a new object is not documented.
    newObjectVisibleMs: 3 * MINUTE_MS,
    companyName: {
      pathOf: (realm) => `/v3/company/${realm}/companyinfo/${realm}`,
      nameOf(body) {
        const company = memberOf(parseJson(body, DOCUMENT_LIMITS), 'companyinfo')
        const name = memberOf(company, 'companyname')
        return typeof name === 'string' ? name : null
      },
    },
  },
}

const CLASSES: Readonly<Record<string, ProviderFaultClass>> = {
  '120': 'provider_permission_denied',
  '130': 'provider_environment_mixed',
  '3100': 'provider_permission_denied',
  '600': 'provider_duplicate_request',
  '5020': 'provider_permission_denied',
  '6190': 'provider_subscription_ended',
  '6200': 'books_closed',
  '6210': 'books_closed',
}

/**
 * Reads the errors in a response body in Intuit's three formats: `{"Fault":{"Error":[…]}}`, the lower-case envelope of
 * Intuit's API gateway, and XML, which Intuit also sends if JSON was requested. The format is recognised by the first
 * character, not by the content type. Returns `null` if the body is not an error.
 */
export function intuitErrors(body: string): readonly ProviderError[] | null {
  const text = body.trimStart()
  return text.startsWith('<') ? errorsOfXml(text) : errorsOfJson(text)
}

/** Returns the error that decides: one that only a person can resolve takes precedence over the first. */
function faultOf(body: string): ProviderFault | null {
  const errors = intuitErrors(body)
  if (errors === null) return null
  const found = errors.map((error) => ({
    ...error,
    class: CLASSES[error.code.replace(/^0+/, '')] ?? null,
  }))
  return (
    found.find((fault) => fault.class !== null) ?? found[0] ?? { ...providerError(''), class: null }
  )
}

const XML_ERROR =
  /<Error\b((?:[^<>"']|"[^"]*"|'[^']*')*)>(?:\s*<Message>([^<]*)<\/Message>)?(?:\s*<Detail>([^<]*))?/g
const XML_CODE = /\scode\s*=\s*["'](\d{1,9})["']/

function errorsOfXml(text: string): ProviderError[] | null {
  const start = text.slice(0, 8_192)
  if (!/<Fault[\s>]/.test(start)) return null
  return [...start.matchAll(XML_ERROR)].map(([, attributes = '', message, detail]) =>
    providerError(XML_CODE.exec(attributes)?.[1] ?? '', unescaped(message), unescaped(detail)),
  )
}

const ENTITIES: Readonly<Record<string, string>> = { lt: '<', gt: '>', quot: '"', apos: "'" }
const unescaped = (text = ''): string =>
  text
    .replace(/&(lt|gt|quot|apos);/g, (_, name: string) => ENTITIES[name] ?? '')
    .replaceAll('&amp;', '&')

function errorsOfJson(text: string): ProviderError[] | null {
  // A body is parsed only if its first characters name a fault, because most bodies are not errors and some have
  // several megabytes.
  if (!/"[Ff]ault"\s*:/.test(text.slice(0, 512))) return null
  const fault = memberOf(parseJson(text, DOCUMENT_LIMITS), 'fault')
  if (typeof fault !== 'object' || fault === null) return null
  const errors = memberOf(fault, 'error')
  return (Array.isArray(errors) ? errors.slice(0, MAX_ERRORS) : [errors]).map((error) => {
    const code = textOf(memberOf(error, 'code'))
    return providerError(
      /^\d{1,9}$/.test(code) ? code : '',
      textOf(memberOf(error, 'message')),
      textOf(memberOf(error, 'detail')),
    )
  })
}

/** The maximum number of errors of a body that are read. */
const MAX_ERRORS = 100

const textOf = (value: unknown): string =>
  typeof value === 'string' || typeof value === 'number' ? String(value) : ''

/** Returns the member with the given name, compared in lower case: for `fault` the member `Fault` or `fault`. */
function memberOf(value: unknown, name: string): unknown {
  if (typeof value !== 'object' || value === null) return undefined
  return Object.entries(value).find(([key]) => key.toLowerCase() === name)?.[1]
}
