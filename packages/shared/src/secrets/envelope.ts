import {
  createCipheriv,
  createDecipheriv,
  createSecretKey,
  hkdfSync,
  type KeyObject,
  randomBytes,
} from 'node:crypto'
import { Secret } from './secret.ts'

/**
 * The envelope of a secret at rest: `1.<key id>.<nonce>.<ciphertext and tag>`, the last two in base64url.
 *
 * The algorithm is AES-256-GCM with a 12-byte random nonce and a 16-byte tag. The additional authenticated data is
 * the place of the secret (name, field, version), so an envelope that is copied to another place cannot be opened.
 */
const FORMAT = '1'
const NONCE_BYTES = 12
const TAG_BYTES = 16

/** The place that an envelope is bound to: a credential, one of its fields, and the version of its token pair. */
export interface Place {
  readonly name: string
  readonly field: string
  readonly version: number
}

/** An envelope cannot be opened: it was sealed with another key or for another place, or its bytes were changed. */
export class DecryptionError extends Error {
  override readonly name = 'DecryptionError'
}

export interface KeyRing {
  /** The id of the key that seals. The other keys of the ring only open. */
  readonly activeKeyId: string
  /** Encrypts a text with the active key, bound to its place. */
  seal(plaintext: string, place: Place): string
  /** Returns whether an envelope was sealed with the active key. */
  isCurrent(envelope: string): boolean
  /** Decrypts an envelope. @throws {DecryptionError} */
  open(envelope: string, place: Place): string
  /**
   * Returns a key ring with the same ids, whose keys are derived from these by HKDF-SHA256 (RFC 5869) with `purpose` as
   * info. What one of the two rings seals cannot be opened with the other.
   */
  derive(purpose: string): KeyRing
}

/**
 * Reads the key ring from `CREDENTIAL_KEYS`, a comma list of `id:base64(32 bytes)`. The first key seals, all open.
 *
 * @throws {TypeError} with the number of the entry that is wrong, never with a key.
 */
export function parseKeyRing(list: Secret): KeyRing {
  const keys = new Map<string, KeyObject>()
  const entries = list.reveal().split(',')
  for (const [index, entry] of entries.entries()) {
    const [id = '', encoded = '', ...rest] = entry.trim().split(':')
    const where = `entry ${index + 1}`
    if (!/^[A-Za-z0-9_-]{1,32}$/.test(id) || rest.length > 0)
      throw new TypeError(`${where} must be id:base64(32 bytes)`)
    if (keys.has(id)) throw new TypeError(`${where} repeats the key id ${id}`)
    const key = Buffer.from(encoded, 'base64')
    if (!/^[A-Za-z0-9+/]{43}=$/.test(encoded) || key.length !== 32)
      throw new TypeError(`${where} (${id}) must hold 32 bytes as base64`)
    keys.set(id, createSecretKey(key))
  }
  const [activeKeyId] = keys.keys()
  if (activeKeyId === undefined) throw new TypeError('at least one key is needed')
  return createKeyRing(activeKeyId, keys)
}

function createKeyRing(activeKeyId: string, keys: ReadonlyMap<string, KeyObject>): KeyRing {
  const keyOf = (id: string): KeyObject => {
    const key = keys.get(id)
    if (key === undefined) throw new DecryptionError(`the key ring has no key ${id}`)
    return key
  }
  return {
    activeKeyId,
    isCurrent: (envelope) => envelope.startsWith(`${FORMAT}.${activeKeyId}.`),
    derive(purpose) {
      const derived = [...keys].map(([id, key]) => {
        const bytes = hkdfSync('sha256', key, Buffer.alloc(0), purpose, 32)
        return [id, createSecretKey(Buffer.from(bytes))] as const
      })
      return createKeyRing(activeKeyId, new Map(derived))
    },
    seal(plaintext, place) {
      const nonce = randomBytes(NONCE_BYTES)
      const cipher = createCipheriv('aes-256-gcm', keyOf(activeKeyId), nonce, {
        authTagLength: TAG_BYTES,
      })
      cipher.setAAD(additionalData(place, activeKeyId))
      const sealed = Buffer.concat([
        cipher.update(plaintext, 'utf8'),
        cipher.final(),
        cipher.getAuthTag(),
      ])
      return [FORMAT, activeKeyId, nonce.toString('base64url'), sealed.toString('base64url')].join(
        '.',
      )
    },
    open(envelope, place) {
      const [format, keyId = '', nonce = '', sealed = '', ...rest] = envelope.split('.')
      if (format !== FORMAT || rest.length > 0)
        throw new DecryptionError('the format of the envelope is not known')
      const bytes = Buffer.from(sealed, 'base64url')
      const iv = Buffer.from(nonce, 'base64url')
      if (iv.length !== NONCE_BYTES || bytes.length < TAG_BYTES)
        throw new DecryptionError('the envelope is truncated')
      // Without authTagLength Node would accept a tag of 4 bytes, which can be guessed.
      const decipher = createDecipheriv('aes-256-gcm', keyOf(keyId), iv, {
        authTagLength: TAG_BYTES,
      })
      decipher.setAAD(additionalData(place, keyId))
      decipher.setAuthTag(bytes.subarray(bytes.length - TAG_BYTES))
      try {
        return Buffer.concat([
          decipher.update(bytes.subarray(0, -TAG_BYTES)),
          decipher.final(),
        ]).toString('utf8')
      } catch {
        throw new DecryptionError('the envelope belongs to another place or was changed')
      }
    },
  }
}

// Each part is prefixed with its length, so that two different places never give the same bytes.
function additionalData({ name, field, version }: Place, keyId: string): Buffer {
  const parts = [FORMAT, keyId, name, field, String(version)]
  return Buffer.from(parts.map((part) => `${Buffer.byteLength(part)}:${part}`).join(''), 'utf8')
}

/** Returns a key ring that also calls `onFailure` for each envelope that it cannot open. */
export const watchDecryptionFailures = (keys: KeyRing, onFailure: () => void): KeyRing => ({
  ...keys,
  open(envelope, place) {
    try {
      return keys.open(envelope, place)
    } catch (error) {
      onFailure()
      throw error
    }
  },
})

/** Generates a key ring for a first start: `k1:base64(32 random bytes)`. */
export const generateKeyRing = (): Secret => new Secret(`k1:${randomBytes(32).toString('base64')}`)
