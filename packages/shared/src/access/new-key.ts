import { randomBytes } from 'node:crypto'
import { Secret } from '../secrets/secret.ts'
import { digestOf } from './access-keys.ts'
import type { KeyEntry } from './key-list.ts'
import { type Scope, SCOPES } from './scope.ts'

/** The permissions of a new key: the members of its entry without the digest. */
export type KeyTerms = Omit<KeyEntry, 'sha256'>

/**
 * Returns a new key, and its entry for the key file. Scanners of source code and logs can recognize a key by its prefix
 * `ihk_`.
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
const NOT_FOR_CONSOLE: readonly Scope[] = [
  'credentials:token',
  'custody:transfer',
  'gateway:read',
  'gateway:write',
]

/** The keys that the compose stack and the embedded host create at their first start. */
export const installationKeys = {
  /** The key for applications. It allows calls of the accounting API, and queuing and reading transactions. */
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
   * The key for the command line. It cannot read tokens, export or import grants, or act for another person. For such
   * tasks, operators create a key that expires.
   */
  operator: {
    id: 'operator',
    scopes: SCOPES.filter((scope) => !NOT_FOR_OPERATORS.includes(scope)),
    ...everything,
  },
  /**
   * The key for the web console, which acts for the persons who have signed in. It cannot read tokens, export grants or
   * call the accounting API.
   */
  console: {
    id: 'console',
    scopes: SCOPES.filter((scope) => !NOT_FOR_CONSOLE.includes(scope)),
    ...everything,
  },
} satisfies Readonly<Record<string, KeyTerms>>
