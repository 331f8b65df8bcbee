import { z } from 'zod'

/**
 * Characters that a line of text must not contain: control characters, and characters that change the direction in
 * which the surrounding text is displayed.
 */
const UNSAFE_CHARACTERS = /[\p{Cc}\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/u

/**
 * The reason of an action, from the body of its request: 1-500 characters on one line. The reason is stored in the
 * action log.
 */
export const Reason = z
  .string()
  .min(1, 'must not be empty')
  .max(500, 'must have at most 500 characters')
  .refine(
    (reason) => !UNSAFE_CHARACTERS.test(reason),
    'must not contain control characters or characters that change the direction of text',
  )
  .refine((reason) => reason.isWellFormed(), 'must be well-formed Unicode')
  .meta({ examples: ['the customer asked for it'] })
