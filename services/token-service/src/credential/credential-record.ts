/**
 * The stored form of a credential, the same in every store: named text fields. Each secret is an envelope that is
 * bound to the credential's name, its field and its version. The empty string stands for an absent secret.
 *
 * B1  A record can be decrypted only under its own name, so a record that is copied to another name is rejected.
 * B2  Every envelope of a token pair authenticates the plain fields that are written with the pair. These fields are
 *     the labels of the envelope (`labelsOf`).
 * B3  `Fault` is written later than the pair, so an envelope of its own, `FaultSeal`, authenticates it.
 * B4  Records of earlier releases have envelopes without labels, and no `FaultSeal`. Such records are accepted
 *     without B2 and B3 until the next token pair is stored. Envelopes without labels cannot be created without the
 *     key, so an attacker can bypass B2 and B3 only by restoring an old record.
 * B5  A replica of an earlier release that runs during an upgrade may store a fault without `FaultSeal` beside a pair
 *     with labels. Such a fault stays in effect, because otherwise this service could send a refresh token of a grant
 *     that has ended or was exported. But the texts of the fault are not shown.
 *
 * The label and the tags of the company (labels.ts) are not the labels of an envelope. They are not part of the token
 * pair, and are written and authenticated separately.
 */
import { Fault } from '@integration-host/shared/contracts/credential'
import { DecryptionError, type KeyRing } from '@integration-host/shared/secrets/envelope'
import { Secret } from '@integration-host/shared/secrets/secret'
import { parseJsonAs } from '@integration-host/shared/json'
import { type FaultClass, faultClasses } from './fault.ts'
import { authenticLabels, labelFields, noLabels, openLabels, resealedLabels } from './labels.ts'
import type { Credential, CredentialSummary, ExpiryNoticeDays, Grant } from './credential.ts'

export type StoredFields = Readonly<Record<string, string>>

/** The stored fields that contain no secret. */
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
  'FaultSeal',
  'Status',
  'Attempts',
  'NextTryAt',
  ...labelFields,
] as const

/** The fields whose values are envelopes. */
const secretFields = ['Authenticator', 'RefreshToken', 'StoreA', 'Previous'] as const

/** The fields that a failed or unfinished refresh adds to the record. The next token pair removes them. */
export const overlayFields = ['Fault', 'FaultSeal', 'Attempts', 'NextTryAt', 'Intent'] as const

/** The plain fields that are written together with a token pair, in the order in which they are authenticated (B2). */
const pairFields = [
  'Environment',
  'Expiry',
  'RefreshedAt',
  'IdleExpiry',
  'HardExpiry',
  'ExpiryNotice',
] as const

/**
 * Returns the plain fields that an envelope of a record authenticates (the labels of the envelope). They need not
 * include name and version, because every envelope is bound to these anyway.
 */
const labelsOf = (fields: StoredFields, field: string): string =>
  JSON.stringify(
    [...pairFields, ...(field === 'Previous' ? ['PreviousRetiredAt'] : [])].map(
      (label) => fields[label] ?? '',
    ),
  )

/** Returns the fields to store for a new token pair. */
export function sealGrant(keys: KeyRing, grant: Grant, version: number): StoredFields {
  const plain: StoredFields = {
    Name: grant.name,
    Expiry: new Date(grant.expiresAt).toISOString(),
    Environment: grant.environment,
    Version: String(version),
    Status: 'active',
    RefreshedAt: new Date(grant.refreshedAt).toISOString(),
    IdleExpiry: new Date(grant.idleExpiresAt).toISOString(),
    HardExpiry: grant.hardExpiresAt === null ? '' : new Date(grant.hardExpiresAt).toISOString(),
    ExpiryNotice: grant.expiryNoticeDays === null ? '' : String(grant.expiryNoticeDays),
    // `Unused` contains the version instead of a flag, because a replica of an earlier release does not write `Unused`.
    // If such a replica stores a new version, the outdated `Unused` has no effect.
    Unused: grant.isUnused === true ? String(version) : '',
    PreviousRetiredAt:
      grant.previous === null ? '' : new Date(grant.previous.retiredAt).toISOString(),
  }
  const seal = (field: string, secret: Secret | null): string =>
    secret === null
      ? ''
      : keys.sealWithLabels(
          secret.reveal(),
          { name: grant.name, field, version },
          labelsOf(plain, field),
        )
  return {
    ...plain,
    Authenticator: seal('Authenticator', grant.accessToken),
    RefreshToken: seal('RefreshToken', grant.refreshToken),
    StoreA: seal('StoreA', grant.idToken),
    Previous: seal('Previous', grant.previous?.token ?? null),
  }
}

/** Returns the fields to store for a fault (B3). The fault belongs to the given version of the credential. */
export function sealFault(
  keys: KeyRing,
  name: string,
  version: number,
  fault: Fault,
): { readonly Fault: string; readonly FaultSeal: string; readonly Status: string } {
  const text = JSON.stringify(fault)
  return { Fault: text, FaultSeal: faultSeal(keys, name, version, text), Status: 'faulted' }
}

const faultSeal = (keys: KeyRing, name: string, version: number, text: string): string =>
  keys.sealWithLabels('', { name, field: 'FaultSeal', version }, text)

/** Reads the fields of a record that contain no secret, except label and tags, which are not authenticated here. */
export function summaryOf(fields: StoredFields): CredentialSummary {
  return {
    ...noLabels,
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

/**
 * Reads the record of `name` and decrypts its access token.
 *
 * @throws {DecryptionError} if another program has changed the record, if it is the record of another name, or if it
 * was encrypted with a key that the key ring does not have.
 */
export const openCredential = (keys: KeyRing, name: string, fields: StoredFields): Credential =>
  openRecord(keys, name, fields).credential

/**
 * Does the same as `openCredential`, and also returns whether the caller is allowed to create a `FaultSeal` for the
 * stored fault. A fault without a seal must not get one if the envelopes of the token pair have labels (B5).
 */
function openRecord(
  keys: KeyRing,
  name: string,
  fields: StoredFields,
): { readonly credential: Credential; readonly maySealFault: boolean } {
  const access = openField(keys, name, fields, 'Authenticator')
  // A record without an access token is authenticated by the envelope of its refresh token.
  const carrier = access ?? openField(keys, name, fields, 'RefreshToken')
  if (fields['Name'] !== name) keys.reject('the record has another name')
  // The other fields are read only after the stored fault was checked, because a record with an invalid fault is
  // rejected.
  const opened = (): Credential => ({
    ...summaryOf(fields),
    ...openLabels(keys, name, fields),
    accessToken: access?.secret ?? null,
  })
  if (carrier?.hasLabels !== true) return { credential: opened(), maySealFault: true } // a record of an earlier release (B4)
  const hasFault = Boolean(fields['Fault'])
  if (fields['Status'] !== (hasFault ? 'faulted' : 'active'))
    keys.reject('Status contradicts the fault')
  const { fault, isAuthenticated } = hasFault
    ? openFault(keys, name, fields)
    : { fault: null, isAuthenticated: false }
  return { credential: { ...opened(), fault }, maySealFault: isAuthenticated }
}

/**
 * Reads the record of `name` for a list. A record that cannot be decrypted is returned with the fault `record_rejected`
 * and without any stored field except the version, so that the list does not fail as a whole.
 */
export function openForList(keys: KeyRing, name: string, fields: StoredFields): CredentialSummary {
  try {
    const { accessToken: _, ...summary } = openCredential(keys, name, fields)
    return summary
  } catch (error) {
    if (!(error instanceof DecryptionError)) throw error
    const version = Number(fields['Version'])
    return {
      ...summaryOf({}),
      name,
      version: Number.isSafeInteger(version) && version > 0 ? version : 1,
      fault: {
        Code: 'record_rejected',
        Message: `The record of ${name} cannot be opened: it was changed by another program, or encrypted with a key that is not in CREDENTIAL_KEYS.`,
        At: new Date(0).toISOString(),
        Attempts: 0,
        Remedy:
          'Set the key that encrypted the record, restore the record from a backup of this version, or remove the credential and connect the company again.',
      },
    }
  }
}

/**
 * Reads the stored fault of a record. A fault without a valid `FaultSeal` stays in effect, but its texts are replaced
 * (B5).
 *
 * @throws {DecryptionError} for a fault that no release of this service can have stored.
 */
function openFault(
  keys: KeyRing,
  name: string,
  fields: StoredFields,
): { readonly fault: Fault; readonly isAuthenticated: boolean } {
  const text = fields['Fault'] ?? ''
  const place = { name, field: 'FaultSeal', version: Number(fields['Version']) }
  const parsed = parseJsonAs(Fault, text)
  try {
    const { hasLabels } = keys.openWithLabels(fields['FaultSeal'] ?? '', place, text)
    if (hasLabels && parsed !== null) return { fault: parsed, isAuthenticated: true }
  } catch (error) {
    if (!(error instanceof DecryptionError)) throw error
  }
  if (parsed === null || !Object.hasOwn(faultClasses, parsed.Code))
    return keys.reject('the fault was not stored by this service')
  const { TraceId: _, ...effect } = parsed
  const { remedy } = faultClasses[parsed.Code as FaultClass]
  const fault = { ...effect, Message: UNAUTHENTICATED_FAULT, Remedy: remedy }
  return { fault, isAuthenticated: false }
}

const UNAUTHENTICATED_FAULT =
  'The text of this fault is not authenticated, so it is not shown. A replica of an earlier release has stored the fault, or another program has changed the record.'

/**
 * Decrypts the secrets that only a refresh or a revocation needs.
 *
 * @throws {DecryptionError} if one of the secrets cannot be decrypted.
 */
export function openGrantSecrets(
  keys: KeyRing,
  name: string,
  fields: StoredFields,
): Pick<Required<Grant>, 'refreshToken' | 'idToken' | 'previous' | 'isUnused'> {
  const open = (field: string) => openField(keys, name, fields, field)?.secret ?? null
  const previous = open('Previous')
  return {
    refreshToken: open('RefreshToken'),
    idToken: open('StoreA'),
    // The field `Unused` is not authenticated, because a wrong value could only change the class of a fault.
    isUnused: fields['Unused'] === fields['Version'],
    previous:
      previous === null
        ? null
        : { token: previous, retiredAt: Date.parse(fields['PreviousRetiredAt'] ?? '') || 0 },
  }
}

/**
 * Decrypts one secret of the record of `name` (B1) and authenticates its labels (B2); `null` if the secret is absent.
 */
function openField(
  keys: KeyRing,
  name: string,
  fields: StoredFields,
  field: string,
): { readonly secret: Secret; readonly hasLabels: boolean } | null {
  const sealed = fields[field] ?? ''
  if (sealed === '') return null
  const place = { name, field, version: Number(fields['Version']) }
  const { plaintext, hasLabels } = keys.openWithLabels(sealed, place, labelsOf(fields, field))
  return { secret: new Secret(plaintext), hasLabels }
}

/**
 * Re-encrypts the envelopes of the record of `name` that were not encrypted with the active key. Returns the changed
 * fields; `null` if no field changes. `fields` must contain all fields of the record.
 *
 * @throws {DecryptionError} if one of the secrets cannot be decrypted.
 */
export function resealed(keys: KeyRing, name: string, fields: StoredFields): StoredFields | null {
  const stale = secretFields.filter((field) => fields[field] && !keys.isCurrent(fields[field]))
  const hasStaleFault = Boolean(fields['FaultSeal']) && !keys.isCurrent(fields['FaultSeal'] ?? '')
  const labels = resealedLabels(keys, name, fields)
  if (stale.length === 0 && !hasStaleFault) return labels
  // Decrypting the secrets also verifies the plain fields. This must happen before new envelopes authenticate these
  // fields.
  const { credential, maySealFault } = openRecord(keys, name, fields)
  const version = Number(fields['Version'])
  const secrets = stale.map((field) => {
    const text = openField(keys, name, fields, field)?.secret.reveal() ?? ''
    return [field, keys.sealWithLabels(text, { name, field, version }, labelsOf(fields, field))]
  })
  return {
    ...labels,
    ...(Object.fromEntries(secrets) as StoredFields),
    // A `FaultSeal` without a valid fault is removed. Otherwise every further resealing would find that the `FaultSeal`
    // is encrypted with an old key.
    ...(hasStaleFault && { FaultSeal: '' }),
    ...(credential.fault !== null &&
      maySealFault && { FaultSeal: faultSeal(keys, name, version, fields['Fault'] ?? '') }),
  }
}

/**
 * Returns whether every secret of the record of `name` can be decrypted. `fields` must contain all fields of the
 * record.
 */
export function isDecryptable(keys: KeyRing, name: string, fields: StoredFields): boolean {
  try {
    openCredential(keys, name, fields)
    openGrantSecrets(keys, name, fields)
    authenticLabels(keys, name, fields)
    return true
  } catch (error) {
    if (error instanceof DecryptionError) return false
    throw error
  }
}

/** All fields that are needed to read a whole record. */
export const recordFields = [
  ...summaryFields,
  ...secretFields,
  'PreviousRetiredAt',
  'Unused',
] as const

/**
 * Returns the age and the fence of the intent in a record; `null` if the current version has no intent. The intent is
 * stored as `version:fence:epoch ms`; in Redis, `:` and the run id of the server follow. `storeNow` is in epoch ms by
 * the clock that wrote the intent.
 */
export function intentOf(
  fields: StoredFields,
  storeNow: number,
): { readonly ageMs: number; readonly fence: number } | null {
  const [version, fence, at] = (fields['Intent'] ?? '').split(':')
  return version === fields['Version']
    ? { ageMs: Math.max(0, storeNow - Number(at)), fence: Number(fence) }
    : null
}
