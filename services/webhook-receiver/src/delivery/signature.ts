import { createHmac, hash, timingSafeEqual } from 'node:crypto'
import type { Secret } from '@integration-host/shared/secrets/secret'

/**
 * Returns whether a signature is valid for a body: the Base64 form of HMAC-SHA256 over the bytes of the body, with one
 * of the verifier tokens as the key.
 *
 * The time does not depend on how much of the signature is correct or which token made it. Digests are compared, because
 * `timingSafeEqual` needs values of equal length, and every token is tried.
 *
 * @see https://developer.intuit.com/app/developer/qbo/docs/develop/webhooks (Validating the notification)
 */
export function isSignedBy(tokens: readonly Secret[], body: Buffer, signature: string): boolean {
  const given = digest(signature)
  let isValid = false
  for (const token of tokens) {
    const expected = createHmac('sha256', token.reveal()).update(body).digest('base64')
    if (timingSafeEqual(digest(expected), given)) isValid = true
  }
  return isValid
}

const digest = (text: string): Buffer => hash('sha256', text, 'buffer')
