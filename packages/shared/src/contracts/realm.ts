import { z } from 'zod'

/**
 * A realm is one authorized company. A realm id is a string and must never be converted to a number. Providers issue
 * 16-digit ids, and `Number('9341453908059889')` is rounded to the id of another company.
 */
export const Realm = z
  .string()
  .regex(/^[A-Za-z0-9_-]{1,64}$/, 'must be 1-64 of A-Z a-z 0-9 _ -')
  .meta({ examples: ['9130354674010826'] })

/** The name of a credential is `ACC-<realm>`. A realm has at most one credential. */
export const CredentialName = z
  .string()
  .regex(/^ACC-[A-Za-z0-9_-]{1,64}$/, 'must be ACC-<realm>, realm 1-64 of A-Z a-z 0-9 _ -')
  .meta({ examples: ['ACC-9130354674010826'] })

/** Returns the name of a realm's credential. */
export const credentialName = (realm: string): string => `ACC-${realm}`

/** Returns the realm of a credential name; the inverse of {@link credentialName}. */
export const realmOf = (name: string): string => name.slice('ACC-'.length)
