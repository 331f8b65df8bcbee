/** Signs id tokens with a key that `jwks` shows the public half of. */
export interface IdentitySigner {
  readonly jwks: { readonly keys: readonly Readonly<Record<string, unknown>>[] }
  /** RS256 in compact form; `iat` and `exp` are among the claims, in epoch seconds. */
  sign(claims: Readonly<Record<string, unknown>>): Promise<string>
}
