/**
 * The bodies of `invalid_grant` at the token endpoint, as users report them. Intuit does not document the descriptions,
 * or when it sends which description. For every rejected code this sandbox sends the description that users report for
 * a made-up code.
 */
export const invalidGrant = {
  code: { error: 'invalid_grant', error_description: 'Invalid authorization code' },
  refreshToken: {
    error: 'invalid_grant',
    error_description: 'Incorrect or invalid refresh token',
  },
} as const
