/**
 * The bodies of `invalid_grant` at the token endpoint, as users report them. Intuit documents neither the descriptions
 * nor their causes. Every rejected code gets the description that was reported for a made-up code.
 */
export const invalidGrant = {
  code: { error: 'invalid_grant', error_description: 'Invalid authorization code' },
  refreshToken: {
    error: 'invalid_grant',
    error_description: 'Incorrect or invalid refresh token',
  },
} as const
