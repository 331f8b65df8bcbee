import { randomBytes } from 'node:crypto'
import { Secret } from '../secrets/secret.ts'
import { digestOf } from './access-keys.ts'
import type { KeyEntry } from './key-list.ts'
import { type Scope, SCOPES } from './scope.ts'

/** What a new key may do: the members of its entry without the digest. */
export type KeyTerms = Omit<KeyEntry, 'sha256'>

/**
 * Returns a new key, and the entry of the key file that makes services accept it. The prefix `ihk_` lets scanners of
 * source code and logs recognise a key.
 */
export function newKey(terms: KeyTerms): { readonly key: Secret; readonly entry: KeyEntry } {
  const key = new Secret(`ihk_${randomBytes(32).toString('base64url')}`)
  return { key, entry: entryOf(key, terms) }
}

/** Returns the entry of the key file for an existing key. */
export const entryOf = (key: Secret, { id, ...rest }: KeyTerms): KeyEntry => ({
  id,
  sha256: digestOf(key.reveal()),
  ...rest,
})

const everything = { realms: ['*'], processes: ['*'] } as const satisfies Partial<KeyTerms>
const NOT_FOR_OPERATORS: readonly Scope[] = ['credentials:token', 'custody:transfer', 'act-for']

/** The keys that the compose stack and the embedded host create at their first start. */
export const installationKeys = {
  /** For applications: the accounting API, queueing, reading. */
  application: {
    id: 'application',
    scopes: [
      'gateway:read',
      'gateway:write',
      'credentials:read',
      'transactions:read',
      'transactions:queue',
    ],
    ...everything,
  },
  /**
   * For the command line. It discloses no token, moves no grant and acts for no other person: for that, operators make
   * a key that expires.
   */
  operator: {
    id: 'operator',
    scopes: SCOPES.filter((scope) => !NOT_FOR_OPERATORS.includes(scope)),
    ...everything,
  },
} satisfies Readonly<Record<string, KeyTerms>>
