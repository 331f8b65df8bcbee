/**
 * The bodies of the error `invalid_grant` at the token endpoint, as users report them. Intuit documents neither the
 * texts of `error_description` nor the cases in which each text is sent. For every rejected code, this sandbox sends
 * the text that users report for a made-up code.
 */
export const invalidGrant = {
  code: { error: 'invalid_grant', error_description: 'Invalid authorization code' },
  refreshToken: {
    error: 'invalid_grant',
    error_description: 'Incorrect or invalid refresh token',
  },
} as const
