/** The base addresses that this provider publishes in its discovery document. */
export interface Addresses {
  /** The base address that services use, without a trailing slash. */
  readonly base: string
  /** The base address that browsers use. */
  readonly browser: string
}

/** Returns the issuer. As with Intuit, its path differs from the path of the discovery document. */
export const issuerOf = ({ base }: Addresses): string => `${base}/op/v1`

export const paths = {
  authorize: '/connect/oauth2',
  token: '/oauth2/v1/tokens/bearer',
  revoke: '/v2/oauth2/tokens/revoke',
  jwks: '/op/v1/jwks',
  userinfo: '/v1/openid_connect/userinfo',
} as const
