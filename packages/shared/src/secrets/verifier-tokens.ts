import { z } from 'zod'
import { Secret } from './secret.ts'

/**
 * The setting `WEBHOOK_VERIFIER_TOKENS`: the verifier tokens of the application at the provider, as a comma-separated
 * list. During a rotation both the old and the new token are configured. Intuit issues one token for each application
 * and environment.
 */
export const verifierTokens = () =>
  z
    .string()
    .transform((list) => [...new Set(list.split(',').map((token) => token.trim()))])
    .pipe(
      z
        .array(
          z
            .string()
            .regex(
              /^[\x21-\x7e]{16,512}$/,
              'must be 16 to 512 printable characters without spaces',
            ),
        )
        .max(10, 'must have at most 10 tokens'),
    )
    .transform((tokens) => tokens.map((token) => new Secret(token)) as [Secret, ...Secret[]])
