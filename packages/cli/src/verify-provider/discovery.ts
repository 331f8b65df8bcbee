/** Reads the provider's discovery document and key set, and compares the document with the provider's documentation. */
import { createPublicKey, type JsonWebKey, type KeyObject } from 'node:crypto'
import { asObject } from '@integration-host/shared/json'
import type { Expectations } from './expectations.ts'
import { address, names } from './wording.ts'

type Json = Readonly<Record<string, unknown>>

export type UsableDocument = Exclude<ReturnType<typeof usableDocument>, { unusable: string }>

/**
 * Returns the members that the other steps need, or the names of the invalid members. In a document that was received
 * over https, an http endpoint is invalid, because secrets would be sent to this endpoint unencrypted.
 */
export function usableDocument(json: Json | null, discoveryUrl: string) {
  if (json === null) return { unusable: 'not a JSON object' }
  const isSecure = discoveryUrl.startsWith('https:')
  const read = (name: string): string | null => {
    const value = json[name]
    const { protocol = '' } = (typeof value === 'string' && URL.parse(value)) || {}
    return protocol === 'https:' || (protocol === 'http:' && !isSecure) ? (value as string) : null
  }
  const lists = (name: string, value: string): boolean => {
    const values = json[name]
    return Array.isArray(values) && values.includes(value)
  }
  const issuer = read('issuer')
  const authorization_endpoint = read('authorization_endpoint')
  const token_endpoint = read('token_endpoint')
  if (issuer === null || authorization_endpoint === null || token_endpoint === null) {
    const needed = Object.entries({ issuer, authorization_endpoint, token_endpoint })
    const lacking = needed.flatMap(([name, value]) => (value === null ? name : []))
    return { unusable: `no usable ${lacking.join(', ')}` }
  }
  return {
    issuer,
    authorization_endpoint,
    token_endpoint,
    revocation_endpoint: read('revocation_endpoint'),
    jwks_uri: read('jwks_uri'),
    userinfo_endpoint: read('userinfo_endpoint'),
    accounting_url: read('accounting_url')?.replace(/(?<!\/)\/+$/, '') ?? null,
    /** Whether the document advertises the challenge method S256 (RFC 8414 §2). */
    hasPkce: lists('code_challenge_methods_supported', 'S256'),
    isIssuerSent: json['authorization_response_iss_parameter_supported'] === true,
    /** Whether an id token must repeat the nonce. */
    isNonceAnnounced: lists('claims_supported', 'nonce'),
  }
}

/** Returns whether the discovery document was read from its documented address; `true` if no address is documented. */
export const isProviderHost = (url: string, { discovery }: Expectations): boolean =>
  discovery.hosts?.includes(new URL(url).hostname) ?? true

/**
 * Returns the differences from the documentation as `missing: …`, `other value: …` and `extra: …`; an empty list if the
 * document has no differences. If `isStandIn` is set, the server is a substitute for the provider, and only the paths
 * of addresses are compared.
 */
export function compareDocument(
  json: Json,
  { discovery }: Expectations,
  isStandIn: boolean,
): string[] {
  const due = Object.entries(discovery.members)
  const missing = due.flatMap(([name]) => (json[name] === undefined ? name : []))
  const other = due.flatMap(([name, isExpected]) =>
    json[name] === undefined || isExpected(json[name], isStandIn)
      ? []
      : `${name} (${shown(json[name])})`,
  )
  const extra = discovery.isComplete
    ? Object.keys(json).filter((name) => discovery.members[name] === undefined)
    : []
  return [
    ...(missing.length === 0 ? [] : [`missing: ${missing.join(', ')}`]),
    ...(other.length === 0 ? [] : [`other value: ${other.join(', ')}`]),
    ...(extra.length === 0 ? [] : [`extra: ${names(extra)}`]),
  ]
}

const shown = (value: unknown): string =>
  typeof value === 'string'
    ? address(value)
    : Array.isArray(value)
      ? names(value.map(String))
      : 'not a list'

/** The public RSA keys of the key set, by their `kid`. */
export type SigningKeys = ReadonlyMap<string, KeyObject>

/** Returns the RSA keys of a JWKS (RFC 7517) and the number of its other keys; `null` if the document is not a JWKS. */
export function readKeys(
  json: Json | null,
): { readonly keys: SigningKeys; readonly others: number } | null {
  const listed = json?.['keys']
  if (!Array.isArray(listed)) return null
  const keys = new Map<string, KeyObject>()
  for (const jwk of listed.slice(0, 100)) {
    const { kid, kty } = asObject(jwk) ?? {}
    if (typeof kid !== 'string' || kty !== 'RSA') continue
    try {
      keys.set(kid, createPublicKey({ key: jwk as JsonWebKey, format: 'jwk' }))
    } catch {
      // An RSA key that is invalid cannot verify a signature, so it is counted with the keys that are not RSA keys.
    }
  }
  return { keys, others: listed.length - keys.size }
}
