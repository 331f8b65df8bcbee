/** Reads the provider's discovery document and key set, and compares the document with the provider's documentation. */
import { createPublicKey, type JsonWebKey, type KeyObject } from 'node:crypto'
import type { ExpectedMember, Expectations } from './expectations.ts'
import { asObject } from '@integration-host/shared/json'
import { address, names } from './wording.ts'

export interface UsableDocument {
  readonly issuer: string
  readonly authorization_endpoint: string
  readonly token_endpoint: string
  readonly revocation_endpoint: string | null
  readonly jwks_uri: string | null
  readonly userinfo_endpoint: string | null
  readonly accounting_url: string | null
  /** Whether the document advertises the challenge method S256 (RFC 8414 §2). */
  readonly hasPkce: boolean
  readonly isIssuerSent: boolean
  /** Whether `claims_supported` lists the nonce. If so, an id token must repeat the nonce. */
  readonly isNonceAnnounced: boolean
}

/**
 * Returns the members that the other steps need, or the names of the invalid members. In a document that was received
 * over https, an http endpoint is invalid, because secrets would be sent to this endpoint unencrypted.
 */
export function usableDocument(
  json: Readonly<Record<string, unknown>> | null,
  discoveryUrl: string,
): UsableDocument | { readonly unusable: string } {
  if (json === null) return { unusable: 'not a JSON object' }
  const isSecure = discoveryUrl.startsWith('https:')
  const read = (name: string): string | null => {
    const value = json[name]
    if (typeof value !== 'string' || !URL.canParse(value)) return null
    const { protocol } = new URL(value)
    return protocol === 'https:' || (protocol === 'http:' && !isSecure) ? value : null
  }
  const issuer = read('issuer')
  const authorization_endpoint = read('authorization_endpoint')
  const token_endpoint = read('token_endpoint')
  if (issuer === null || authorization_endpoint === null || token_endpoint === null) {
    const needed = { issuer, authorization_endpoint, token_endpoint }
    const lacking = Object.entries(needed).flatMap(([name, value]) => (value === null ? name : []))
    return { unusable: `no usable ${lacking.join(', ')}` }
  }
  const lists = (name: string, value: string): boolean => {
    const values = json[name]
    return Array.isArray(values) && values.includes(value)
  }
  return {
    issuer,
    authorization_endpoint,
    token_endpoint,
    revocation_endpoint: read('revocation_endpoint'),
    jwks_uri: read('jwks_uri'),
    userinfo_endpoint: read('userinfo_endpoint'),
    accounting_url: read('accounting_url')?.replace(/(?<!\/)\/+$/, '') ?? null,
    hasPkce: lists('code_challenge_methods_supported', 'S256'),
    isIssuerSent: json['authorization_response_iss_parameter_supported'] === true,
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
  json: Readonly<Record<string, unknown>>,
  { discovery }: Expectations,
  isStandIn: boolean,
): string[] {
  const expected = Object.entries(discovery.members)
  const missing = expected.flatMap(([name]) => (json[name] === undefined ? name : []))
  const other = expected.flatMap(([name, member]) =>
    json[name] === undefined || isExpected(json[name], member, isStandIn)
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

function isExpected(value: unknown, member: ExpectedMember, isStandIn: boolean): boolean {
  if (member === 'any address' || 'url' in member) {
    if (typeof value !== 'string' || !URL.canParse(value)) return false
    if (member === 'any address') return true
    return member.url.some((url) =>
      isStandIn ? new URL(value).pathname === new URL(url).pathname : url === value,
    )
  }
  if (!Array.isArray(value)) return false
  if ('includes' in member) return member.includes.every((one) => value.includes(one))
  return value.length === member.list.length && member.list.every((one) => value.includes(one))
}

const shown = (value: unknown): string => {
  if (typeof value === 'string') return address(value)
  if (!Array.isArray(value)) return 'not a list'
  return names(value.map(String))
}

/** The public RSA keys of the key set, by their `kid`. */
export type SigningKeys = ReadonlyMap<string, KeyObject>

/** Returns the RSA keys of a JWKS (RFC 7517) and the number of its other keys; `null` if the document is not a JWKS. */
export function readKeys(
  json: Readonly<Record<string, unknown>> | null,
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
