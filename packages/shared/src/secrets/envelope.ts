import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  createSecretKey,
  hkdfSync,
  type KeyObject,
  randomBytes,
  randomFillSync,
} from 'node:crypto'
import { Secret } from './secret.ts'

/**
 * The envelope of a secret at rest: `1.<key id>.<nonce>.<ciphertext and tag>`. Nonce, ciphertext and tag are encoded in
 * base64url.
 *
 * The algorithm is AES-256-GCM with a 12-byte nonce and a 16-byte tag. The additional authenticated data is the place
 * of the secret (name, field, version), so an envelope that is copied to another place cannot be opened.
 *
 * An envelope can also authenticate labels: text that is stored unencrypted beside the envelope. Earlier releases do
 * not know labels and must be able to open the envelope, so the labels are not a part of the additional authenticated
 * data. Instead, the nonce of an envelope with labels is computed (a synthetic IV, as in RFC 5297):
 *
 *   bytes 0–4   a MAC of place and plaintext, which shows that the envelope has labels
 *   bytes 5–11  a MAC of place, plaintext and labels
 *
 * AES-GCM authenticates the nonce. An attacker without the key can therefore neither remove the labels from an envelope
 * nor make it match other labels (the chance is 2^-56 per attempt). For different plaintexts or places, equal nonces
 * are as unlikely as with random nonces. Equal inputs give equal envelopes, which reveals only that the inputs are
 * equal. The chance that a random nonce looks like the nonce of an envelope with labels is 2^-40.
 */
const FORMAT = '1'
const NONCE_BYTES = 12
const TAG_BYTES = 16
const MARK_BYTES = 5
const POOLED_NONCES = 512

/** The place to which an envelope is bound: a credential, one of its fields, and the version of its token pair. */
export interface Place {
  readonly name: string
  readonly field: string
  readonly version: number
}

/**
 * The error if an envelope cannot be opened, because it was sealed with another key or for another place, or because
 * its bytes were changed.
 */
export class DecryptionError extends Error {
  override readonly name = 'DecryptionError'
}

export interface KeyRing {
  /** The id of the key that seals envelopes. The other keys of the ring only open envelopes. */
  readonly activeKeyId: string
  /** Encrypts a text with the active key and binds the envelope to its place. */
  seal(plaintext: string, place: Place): string
  /** Encrypts a text like `seal`, and also authenticates `labels`. */
  sealWithLabels(plaintext: string, place: Place, labels: string): string
  /**
   * Decrypts an envelope. If the envelope was sealed without labels, as by earlier releases, `hasLabels` is `false` and
   * `labels` are not compared.
   *
   * @throws {DecryptionError} also if the envelope was sealed with different labels.
   */
  openWithLabels(
    envelope: string,
    place: Place,
    labels: string,
  ): { readonly plaintext: string; readonly hasLabels: boolean }
  /**
   * Reports a stored secret that does not match the data stored beside it.
   *
   * @throws {DecryptionError} always.
   */
  reject(reason: string): never
  /** Returns whether an envelope was sealed with the active key. */
  isCurrent(envelope: string): boolean
  /**
   * Decrypts an envelope.
   * @throws {DecryptionError} if the envelope cannot be opened.
   */
  open(envelope: string, place: Place): string
  /**
   * Returns a key ring with the same key ids. Its keys are derived by HKDF-SHA256 (RFC 5869) with `purpose` as info. An
   * envelope that one of the two rings sealed cannot be opened with the other ring.
   */
  derive(purpose: string): KeyRing
}

/**
 * Reads the key ring from `CREDENTIAL_KEYS`, a comma-separated list of `id:base64(32 bytes)`. The first key seals
 * envelopes, and every key opens them.
 *
 * @throws {TypeError} if an entry is wrong; the message contains the position of the entry, never a key.
 */
export function parseKeyRing(list: Secret): KeyRing {
  const keys = new Map<string, RingKey>()
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
    keys.set(id, ringKey(key))
  }
  const [activeKeyId] = keys.keys()
  if (activeKeyId === undefined) throw new TypeError('at least one key is needed')
  return createKeyRing(activeKeyId, keys)
}

/**
 * Returns a key ring for texts that only this service reads again, such as the state of a sign-in in a cookie. Its key
 * is derived from a secret that all replicas have, by HKDF-SHA256 (RFC 5869) with `purpose` as info.
 */
export function keyRingOf(shared: Secret, purpose: string): KeyRing {
  const bytes = hkdfSync('sha256', shared.reveal(), Buffer.alloc(0), purpose, 32)
  return createKeyRing('k1', new Map([['k1', ringKey(Buffer.from(bytes))]]))
}

/** A key of the ring (`cipher`), and the key derived from it that computes nonces (`nonce`). */
interface RingKey {
  readonly cipher: KeyObject
  readonly nonce: KeyObject
}

const ringKey = (bytes: Buffer): RingKey => ({
  cipher: createSecretKey(bytes),
  // Nonces are computed with a separate key, because the same key must not be used with two algorithms.
  nonce: createSecretKey(Buffer.from(hkdfSync('sha256', bytes, '', 'envelope nonce', 32))),
})

function createKeyRing(activeKeyId: string, keys: ReadonlyMap<string, RingKey>): KeyRing {
  const keyOf = (id: string): RingKey => {
    const key = keys.get(id)
    if (key === undefined) throw new DecryptionError(`the key ring has no key ${id}`)
    return key
  }
  const nextNonce = createNonces()
  return {
    activeKeyId,
    isCurrent: (envelope) => envelope.startsWith(`${FORMAT}.${activeKeyId}.`),
    derive(purpose) {
      const derived = [...keys].map(([id, { cipher }]) => {
        const bytes = hkdfSync('sha256', cipher, Buffer.alloc(0), purpose, 32)
        return [id, ringKey(Buffer.from(bytes))] as const
      })
      return createKeyRing(activeKeyId, new Map(derived))
    },
    seal: (plaintext, place) =>
      encrypt(keyOf(activeKeyId), activeKeyId, plaintext, place, nextNonce()),
    sealWithLabels(plaintext, place, labels) {
      const key = keyOf(activeKeyId)
      const sealed = placeText(place, activeKeyId) + prefixed(plaintext)
      const nonce = Buffer.concat([mark(key, sealed), labelsMac(key, sealed, labels)])
      return encrypt(key, activeKeyId, plaintext, place, nonce)
    },
    open: (envelope, place) => decrypt(keyOf, envelope, place).plaintext,
    openWithLabels(envelope, place, labels) {
      const { plaintext, key, keyId, nonce } = decrypt(keyOf, envelope, place)
      const sealed = placeText(place, keyId) + prefixed(plaintext)
      // The nonce is not secret, so it need not be compared in constant time.
      if (nonce.subarray(MARK_BYTES).equals(labelsMac(key, sealed, labels)))
        return { plaintext, hasLabels: true }
      if (nonce.subarray(0, MARK_BYTES).equals(mark(key, sealed)))
        throw new DecryptionError('the data beside the envelope was changed')
      return { plaintext, hasLabels: false }
    },
    reject(reason) {
      throw new DecryptionError(reason)
    },
  }
}

/**
 * Returns a function that returns random nonces. Many nonces are generated at a time, because one call of the random
 * generator costs a quarter of the encryption of a short text. A nonce must be used before the next call, because that
 * call may overwrite the memory of the nonce.
 */
function createNonces(): () => Buffer {
  const pool = Buffer.allocUnsafeSlow(NONCE_BYTES * POOLED_NONCES)
  let next = pool.length
  return () => {
    if (next === pool.length) {
      randomFillSync(pool)
      next = 0
    }
    next += NONCE_BYTES
    return pool.subarray(next - NONCE_BYTES, next)
  }
}

function encrypt(
  key: RingKey,
  keyId: string,
  plaintext: string,
  place: Place,
  nonce: Buffer,
): string {
  const cipher = createCipheriv('aes-256-gcm', key.cipher, nonce, { authTagLength: TAG_BYTES })
  cipher.setAAD(Buffer.from(placeText(place, keyId), 'utf8'))
  const ciphertext = cipher.update(plaintext, 'utf8')
  cipher.final() // this call computes the tag
  const sealed = Buffer.concat([ciphertext, cipher.getAuthTag()])
  return `${FORMAT}.${keyId}.${nonce.toString('base64url')}.${sealed.toString('base64url')}`
}

/**
 * Decrypts an envelope.
 * @throws {DecryptionError} if the envelope cannot be opened.
 */
function decrypt(keyOf: (id: string) => RingKey, envelope: string, place: Place) {
  const [format, keyId = '', encodedNonce = '', sealed = '', ...rest] = envelope.split('.')
  if (format !== FORMAT || rest.length > 0)
    throw new DecryptionError('the format of the envelope is not known')
  const bytes = decoded(sealed)
  const nonce = decoded(encodedNonce)
  if (nonce.length !== NONCE_BYTES || bytes.length < TAG_BYTES)
    throw new DecryptionError('the envelope is truncated')
  const key = keyOf(keyId)
  // Without authTagLength Node would accept a tag of 4 bytes, which can be guessed.
  const decipher = createDecipheriv('aes-256-gcm', key.cipher, nonce, { authTagLength: TAG_BYTES })
  decipher.setAAD(Buffer.from(placeText(place, keyId), 'utf8'))
  decipher.setAuthTag(bytes.subarray(bytes.length - TAG_BYTES))
  try {
    const plaintext = decipher.update(bytes.subarray(0, -TAG_BYTES))
    decipher.final() // this call verifies the tag
    return { plaintext: plaintext.toString('utf8'), key, keyId, nonce }
  } catch {
    throw new DecryptionError('the envelope belongs to another place or was changed')
  }
}

// The two parts of the nonce of an envelope with labels, as the comment at the top of this file describes them.
const mark = (key: RingKey, sealed: string): Buffer => mac(key, sealed).subarray(0, MARK_BYTES)
const labelsMac = (key: RingKey, sealed: string, labels: string): Buffer =>
  mac(key, sealed + prefixed(labels)).subarray(0, NONCE_BYTES - MARK_BYTES)

const mac = (key: RingKey, text: string): Buffer =>
  createHmac('sha256', key.nonce).update(text, 'utf8').digest()

/**
 * Decodes a part of an envelope. Node ignores surplus characters and bits of base64url. If they were accepted, a client
 * could add a character to a used envelope, which would be opened but not recognized as used.
 */
function decoded(part: string): Buffer {
  const bytes = Buffer.from(part, 'base64url')
  if (bytes.toString('base64url') !== part)
    throw new DecryptionError('the encoding of the envelope is not canonical')
  return bytes
}

/**
 * Returns the place and the key id of an envelope as text. Each part is preceded by its length, so that two places
 * never have the same text.
 */
const placeText = ({ name, field, version }: Place, keyId: string): string =>
  prefixed(FORMAT) + prefixed(keyId) + prefixed(name) + prefixed(field) + prefixed(String(version))

const prefixed = (part: string): string => `${Buffer.byteLength(part)}:${part}`

/**
 * Returns a key ring that works like the given one. It also calls `onFailure` for each envelope that cannot be opened
 * and for each call of `reject`.
 */
export function watchDecryptionFailures(keys: KeyRing, onFailure: () => void): KeyRing {
  const watched = <T>(open: () => T): T => {
    try {
      return open()
    } catch (error) {
      onFailure()
      throw error
    }
  }
  return {
    ...keys,
    open: (envelope, place) => watched(() => keys.open(envelope, place)),
    openWithLabels: (envelope, place, labels) =>
      watched(() => keys.openWithLabels(envelope, place, labels)),
    reject: (reason) => watched(() => keys.reject(reason)),
  }
}

/** Generates a key ring for the first start: `k1:base64(32 random bytes)`. */
export const generateKeyRing = (): Secret => new Secret(`k1:${randomBytes(32).toString('base64')}`)
