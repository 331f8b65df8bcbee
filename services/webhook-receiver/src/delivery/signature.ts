import { createHmac, hash, timingSafeEqual } from 'node:crypto'
import type { Secret } from '@integration-host/shared/secrets/secret'

/**
 * Returns whether `signature` is valid for `body`. A valid signature is the Base64 form of HMAC-SHA256 over the bytes
 * of the body, with one of the verifier tokens as the key.
 *
 * The comparison takes the same time for every signature and every token. All tokens are tried, and digests are
 * compared, because `timingSafeEqual` needs values of equal length.
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
