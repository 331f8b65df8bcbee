/** The base addresses that this provider publishes in its discovery document. */
export interface Addresses {
  /** The base address for calls of services, without a trailing slash. */
  readonly base: string
  /** The base address for browsers. */
  readonly browser: string
}

/** Returns the issuer. As at Intuit, its path differs from that of the discovery document. */
export const issuerOf = ({ base }: Addresses): string => `${base}/op/v1`

export const paths = {
  authorize: '/connect/oauth2',
  token: '/oauth2/v1/tokens/bearer',
  revoke: '/v2/oauth2/tokens/revoke',
  jwks: '/op/v1/jwks',
  userinfo: '/v1/openid_connect/userinfo',
} as const
