/**
 * Intuit (QuickBooks Online) according to its documentation. docs/intuit.md has the source of each line, its test,
 * and whether it was verified against the live service.
 */
import { parseJson } from '../json.ts'
import type { ProviderFault, ProviderFaultClass } from './provider-fault.ts'
import type { ProviderProfile } from './provider-profile.ts'

const ISSUER = 'https://oauth.platform.intuit.com/op/v1'
const MINUTE_MS = 60_000
const HOUR_MS = 60 * MINUTE_MS

export const intuit: ProviderProfile = {
  name: 'intuit',
  authorization: {
    // Intuit does not list `nonce` in `claims_supported`, and none of its sample id tokens has one.
    isNonceRequired: false,
    realmClaim: 'realmid',
    realmScopes: ['com.intuit.quickbooks.accounting', 'com.intuit.quickbooks.payment'],
  },
  token: {
    // Without this header the response does not say when the grant ends regardless of refreshes.
    requestHeaders: { 'x-include-refresh-token-hard-expires-in': 'true' },
    idleExpiryMember: 'x_refresh_token_expires_in',
    hardExpiryMember: 'x_refresh_token_hard_expires_in',
  },
  grant: {
    idleLimitDays: 100,
    // Intuit's documents disagree on whether there is a grace period; the older ones say 24 hours.
    previousTokenGraceMs: 24 * HOUR_MS,
    // The authorization FAQ says that an outage may return `invalid_grant`. The delays add up to a day.
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
      // The two discovery documents have the same issuer and differ in this member only.
      const host = URL.parse(String(userinfo))?.hostname ?? ''
      if (host.startsWith('sandbox-accounts.')) return 'https://sandbox-quickbooks.api.intuit.com'
      // Production is never the default: if the document does not say so, an operator must set ACCOUNTING_URL.
      return host.startsWith('accounts.') ? 'https://quickbooks.api.intuit.com' : null
    },
    repeatablePost: { in: 'query', name: 'requestid' },
    // A query statement may be the body of a POST.
    isReadingPost: (path) => /^\/v3\/company\/[^/]+\/query\/?(?:\?|$)/.test(path),
    limits: {
      calls: { perSecond: 10, perMinute: 500, concurrent: 10 },
      batchesPerMinute: 40,
      coolDownSeconds: 60,
    },
    faultOf,
  },
}

const CLASSES: Readonly<Record<string, ProviderFaultClass>> = {
  '120': 'provider_permission_denied',
  '130': 'provider_environment_mixed',
  '3100': 'provider_permission_denied',
  '600': 'provider_duplicate_request',
  '5020': 'provider_permission_denied',
  '6190': 'provider_subscription_ended',
}

/**
 * Reads Intuit's three error forms: `{"Fault":{"Error":[…]}}`, the lower-case envelope of its API gateway,
 * and XML, which it also sends where JSON was requested. The first character decides, not the content type.
 */
function faultOf(body: string): ProviderFault | null {
  const text = body.trimStart()
  const codes = text.startsWith('<') ? codesOfXml(text) : codesOfJson(text)
  if (codes === null) return null
  // Of several errors, one that needs a person has precedence.
  const found = codes.map((code) => ({ code, class: CLASSES[code.replace(/^0+/, '')] ?? null }))
  return found.find((fault) => fault.class !== null) ?? found[0] ?? { code: '', class: null }
}

const XML_ERROR = /<Error\b(?:[^<>"']|"[^"]*"|'[^']*')*?\scode\s*=\s*["'](\d{1,9})["']/g

function codesOfXml(text: string): string[] | null {
  const start = text.slice(0, 8_192)
  if (!/<Fault[\s>]/.test(start)) return null
  return [...start.matchAll(XML_ERROR)].map(([, code = '']) => code)
}

function codesOfJson(text: string): string[] | null {
  // Most bodies are not errors, and some have megabytes, so a body is parsed only if its beginning names a fault.
  if (!/"[Ff]ault"\s*:/.test(text.slice(0, 512))) return null
  const fault = memberOf(parseJson(text), 'fault')
  if (typeof fault !== 'object' || fault === null) return null
  const errors = memberOf(fault, 'error')
  return (Array.isArray(errors) ? errors : [errors])
    .map((error) => String(memberOf(error, 'code')))
    .filter((code) => /^\d{1,9}$/.test(code))
}

/** Returns the member with this lower-case name, whatever its case is: `Fault`, `fault`. */
function memberOf(value: unknown, name: string): unknown {
  if (typeof value !== 'object' || value === null) return undefined
  return Object.entries(value).find(([key]) => key.toLowerCase() === name)?.[1]
}
