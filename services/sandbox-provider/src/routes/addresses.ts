/** Where this provider says it is. */
export interface Addresses {
  /** For calls from server to server, without a trailing slash. */
  readonly base: string
  /** For the browser. */
  readonly browser: string
}

/** Like the real one's, the issuer is not where the discovery document lies. */
export const issuerOf = ({ base }: Addresses): string => `${base}/op/v1`

export const paths = {
  authorize: '/connect/oauth2',
  token: '/oauth2/v1/tokens/bearer',
  revoke: '/v2/oauth2/tokens/revoke',
  jwks: '/op/v1/jwks',
  userinfo: '/v1/openid_connect/userinfo',
} as const
