import { calculateJwkThumbprint } from 'jose/jwk/thumbprint'
import { SignJWT } from 'jose/jwt/sign'
import { exportJWK } from 'jose/key/export'
import { generateKeyPair } from 'jose/key/generate/keypair'
import type { IdentitySigner } from '../../identity/id-token.ts'

/** Returns a signer with a newly generated key. The key is lost when the sandbox provider exits. */
export async function createIdentitySigner(): Promise<IdentitySigner> {
  const { privateKey, publicKey } = await generateKeyPair('RS256', { modulusLength: 2_048 })
  const jwk = await exportJWK(publicKey)
  const kid = await calculateJwkThumbprint(jwk)
  return {
    jwks: { keys: [{ ...jwk, kid, use: 'sig', alg: 'RS256' }] },
    sign: (claims) =>
      new SignJWT({ ...claims }).setProtectedHeader({ alg: 'RS256', kid }).sign(privateKey),
  }
}
