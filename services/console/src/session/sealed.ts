/**
 * Encrypts what the console stores for the owner of a session. The key is derived from the secret of the session, which
 * only the person's cookie contains. Therefore nobody can read the content in the store.
 */
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto'

const ALGORITHM = 'aes-256-gcm'
const NONCE_BYTES = 12
const TAG_BYTES = 16

const keyOf = (secret: string, name: string): Uint8Array =>
  new Uint8Array(hkdfSync('sha256', secret, name, 'console stored response', 32))

/**
 * Encrypts `content` with AES-256-GCM, and returns nonce, tag and ciphertext in base64url. `name` is the unique name under
 * which the content is stored.
 */
export function seal(secret: string, name: string, content: Uint8Array): string {
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv(ALGORITHM, keyOf(secret, name), nonce)
  const encrypted = [cipher.update(content), cipher.final()]
  return Buffer.concat([nonce, cipher.getAuthTag(), ...encrypted]).toString('base64url')
}

/** Decrypts what {@link seal} has returned. @throws {Error} the secret or the name is another one. */
export function unseal(secret: string, name: string, sealed: string): Buffer {
  const bytes = Buffer.from(sealed, 'base64url')
  const [tagAt, contentAt] = [NONCE_BYTES, NONCE_BYTES + TAG_BYTES]
  const decipher = createDecipheriv(ALGORITHM, keyOf(secret, name), bytes.subarray(0, tagAt), {
    authTagLength: TAG_BYTES,
  })
  decipher.setAuthTag(bytes.subarray(tagAt, contentAt))
  return Buffer.concat([decipher.update(bytes.subarray(contentAt)), decipher.final()])
}
