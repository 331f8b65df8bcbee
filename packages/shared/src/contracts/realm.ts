import { z } from 'zod'

/**
 * A realm is one authorized company. It is a string and never becomes a number: providers issue
 * 16-digit ids, and `Number('9341453908059889')` is another company's id.
 */
export const Realm = z.string().regex(/^[A-Za-z0-9_-]{1,64}$/, 'must be 1-64 of A-Z a-z 0-9 _ -')

/** Credential names are `ACC-<realm>`, unique per realm. */
export const CredentialName = z
  .string()
  .regex(/^ACC-[A-Za-z0-9_-]{1,64}$/, 'must be ACC-<realm>, realm 1-64 of A-Z a-z 0-9 _ -')

/** Returns the name of a realm's credential. */
export const credentialName = (realm: string): string => `ACC-${realm}`

/** Returns the realm of a credential name; the inverse of {@link credentialName}. */
export const realmOf = (name: string): string => name.slice('ACC-'.length)
