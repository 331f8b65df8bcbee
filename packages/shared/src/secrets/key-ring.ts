import { z } from 'zod'
import { secret } from '../process/config.ts'
import { parseKeyRing } from './envelope.ts'

/** A setting that holds a key ring, such as `CREDENTIAL_KEYS`. The error for a wrong entry does not contain the key. */
export const keyRing = () =>
  secret().transform((list, context) => {
    try {
      return parseKeyRing(list)
    } catch (error) {
      const why = error instanceof TypeError ? error.message : 'is not a key ring'
      context.addIssue({ code: 'custom', message: why })
      return z.NEVER
    }
  })
