/**
 * The token endpoint's `invalid_grant` bodies as users report them. Intuit documents neither the descriptions nor
 * which of them belongs to which cause; here every code that is not accepted gets the one that was seen for a
 * made-up code.
 */
export const invalidGrant = {
  code: { error: 'invalid_grant', error_description: 'Invalid authorization code' },
  refreshToken: {
    error: 'invalid_grant',
    error_description: 'Incorrect or invalid refresh token',
  },
} as const
