/** Signs id tokens; `jwks` is the key set with the public key. */
export interface IdentitySigner {
  readonly jwks: { readonly keys: readonly Readonly<Record<string, unknown>>[] }
  /** Returns a JWT in compact form, signed with RS256. The claims contain `iat` and `exp` in epoch seconds. */
  sign(claims: Readonly<Record<string, unknown>>): Promise<string>
}
