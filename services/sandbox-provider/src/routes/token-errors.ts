/**
 * The bodies of the error `invalid_grant` at the token endpoint, as users report them. Intuit does not document the
 * texts of `error_description` or the cases to which they belong. For every rejected code, this sandbox sends the text
 * that users report for a made-up code.
 */
export const invalidGrant = {
  code: { error: 'invalid_grant', error_description: 'Invalid authorization code' },
  refreshToken: {
    error: 'invalid_grant',
    error_description: 'Incorrect or invalid refresh token',
  },
} as const
