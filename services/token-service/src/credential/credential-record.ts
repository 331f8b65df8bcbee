/**
 * The stored form of a credential, the same in every store: named text fields. Each secret is an envelope that is
 * bound to its credential, field and version. The empty string stands for an absent secret.
 */
import { Fault } from '@integration-host/shared/contracts/credential'
import { DecryptionError, type KeyRing } from '@integration-host/shared/secrets/envelope'
import { Secret } from '@integration-host/shared/secrets/secret'
import type { Credential, CredentialSummary, ExpiryNoticeDays, Grant } from './credential.ts'

export type StoredFields = Readonly<Record<string, string>>

/** The fields without secrets. */
export const summaryFields = [
  'Name',
  'Environment',
  'Expiry',
  'Version',
  'RefreshedAt',
  'IdleExpiry',
  'HardExpiry',
  'ExpiryNotice',
  'Fault',
  'Attempts',
  'NextTryAt',
] as const

/** The fields whose values are envelopes. */
export const secretFields = ['Authenticator', 'RefreshToken', 'StoreA', 'Previous'] as const

/** The fields that a failed or unfinished refresh adds to a token pair, and that the next pair removes. */
export const overlayFields = ['Fault', 'Attempts', 'NextTryAt', 'Intent'] as const

/** Returns the fields to store for a new token pair. */
export function sealGrant(keys: KeyRing, grant: Grant, version: number): StoredFields {
  const seal = (field: string, secret: Secret | null): string =>
    secret === null ? '' : keys.seal(secret.reveal(), { name: grant.name, field, version })
  return {
    Name: grant.name,
    Authenticator: seal('Authenticator', grant.accessToken),
    Expiry: new Date(grant.expiresAt).toISOString(),
    RefreshToken: seal('RefreshToken', grant.refreshToken),
    StoreA: seal('StoreA', grant.idToken),
    Environment: grant.environment,
    Version: String(version),
    Status: 'active',
    RefreshedAt: new Date(grant.refreshedAt).toISOString(),
    IdleExpiry: new Date(grant.idleExpiresAt).toISOString(),
    HardExpiry: grant.hardExpiresAt === null ? '' : new Date(grant.hardExpiresAt).toISOString(),
    ExpiryNotice: grant.expiryNoticeDays === null ? '' : String(grant.expiryNoticeDays),
    Previous: seal('Previous', grant.previous?.token ?? null),
    PreviousRetiredAt:
      grant.previous === null ? '' : new Date(grant.previous.retiredAt).toISOString(),
  }
}

/** Reads the fields of a record that are not secret. */
export function summaryOf(fields: StoredFields): CredentialSummary {
  return {
    name: fields['Name'] ?? '',
    environment: fields['Environment'] ?? '',
    expiresAt: Date.parse(fields['Expiry'] ?? '') || 0,
    refreshedAt: Date.parse(fields['RefreshedAt'] ?? '') || 0,
    version: Number(fields['Version']),
    idleExpiresAt: Date.parse(fields['IdleExpiry'] ?? '') || Number.POSITIVE_INFINITY,
    hardExpiresAt: Date.parse(fields['HardExpiry'] ?? '') || null,
    expiryNoticeDays: (Number(fields['ExpiryNotice']) || null) as ExpiryNoticeDays | null,
    fault: fields['Fault'] ? Fault.parse(JSON.parse(fields['Fault'])) : null,
    attempts: Number(fields['Attempts'] || 0),
    nextTryAt: fields['NextTryAt'] ? Date.parse(fields['NextTryAt']) : null,
  }
}

/** Reads a record and decrypts its access token. @throws {DecryptionError} */
export function openCredential(keys: KeyRing, fields: StoredFields): Credential {
  return { ...summaryOf(fields), accessToken: openField(keys, fields, 'Authenticator') }
}

/** Decrypts the secrets that only a refresh or a revocation needs. @throws {DecryptionError} */
export function openGrantSecrets(
  keys: KeyRing,
  fields: StoredFields,
): Pick<Grant, 'refreshToken' | 'idToken' | 'previous'> {
  const previous = openField(keys, fields, 'Previous')
  return {
    refreshToken: openField(keys, fields, 'RefreshToken'),
    idToken: openField(keys, fields, 'StoreA'),
    previous:
      previous === null
        ? null
        : { token: previous, retiredAt: Date.parse(fields['PreviousRetiredAt'] ?? '') || 0 },
  }
}

function openField(keys: KeyRing, fields: StoredFields, field: string): Secret | null {
  const sealed = fields[field] ?? ''
  if (sealed === '') return null
  const place = { name: fields['Name'] ?? '', field, version: Number(fields['Version']) }
  return new Secret(keys.open(sealed, place))
}

/**
 * Re-encrypts the secrets of a record that another key than the active one has encrypted. Returns their fields;
 * `null` if there are none.
 *
 * @throws {DecryptionError}
 */
export function resealed(keys: KeyRing, fields: StoredFields): StoredFields | null {
  const stale = secretFields.filter((field) => fields[field] && !keys.isCurrent(fields[field]))
  if (stale.length === 0) return null
  const name = fields['Name'] ?? ''
  const version = Number(fields['Version'])
  return Object.fromEntries(
    stale.map((field) => {
      const place = { name, field, version }
      return [field, keys.seal(keys.open(fields[field] ?? '', place), place)]
    }),
  )
}

/** Returns whether every secret of a record can be decrypted. */
export function isDecryptable(keys: KeyRing, fields: StoredFields): boolean {
  try {
    for (const field of secretFields) openField(keys, fields, field)
    return true
  } catch (error) {
    if (error instanceof DecryptionError) return false
    throw error
  }
}

/**
 * Returns the age of a record's intent, which is stored as `version:fence:epoch ms`; `null` if there is none for
 * the current version. `storeNow` is epoch ms by the clock that wrote the intent.
 */
export function intentOf(
  fields: StoredFields,
  storeNow: number,
): { readonly ageMs: number } | null {
  const [version, , at] = (fields['Intent'] ?? '').split(':')
  return version === fields['Version'] ? { ageMs: Math.max(0, storeNow - Number(at)) } : null
}
