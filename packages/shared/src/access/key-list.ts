import { hash, randomBytes } from 'node:crypto'
import { z } from 'zod'
import type { ParsedList } from '../files/list-file.ts'
import { OWN_TEXT, parseJson } from '../json.ts'
import { SCOPES, type Scope } from './scope.ts'
import { Secret } from '../secrets/secret.ts'

/**
 * The id of a key, by which logs name its callers. An id must be shorter than a key, so that a key that is entered as
 * an id by mistake is rejected and not printed.
 */
export const KeyId = z
  .string()
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9._-]{0,30}$/,
    'must be 1-31 of A-Z a-z 0-9 . _ -, starting with a letter or digit',
  )

/** The pattern of a realm or process: `*`, an exact name, or a prefix that ends in `*`. */
const NamePattern = z
  .string()
  .regex(/^(?:[A-Za-z0-9_.-]{1,128}\*?|\*)$/, 'must be a name, a prefix that ends in *, or *')

/** An entry of `SERVICE_KEYS_FILE`. It contains the SHA-256 of the key instead of the key itself. */
export const KeyEntry = z.strictObject({
  id: KeyId,
  sha256: z
    .string()
    .regex(/^[0-9a-f]{64}$/, 'must be the SHA-256 of the key in 64 hex digits, lower case'),
  scopes: z
    .array(z.enum(SCOPES, `must be one of ${SCOPES.join(', ')}`))
    .min(1, 'must name a scope'),
  /** If this member is absent, the key is not allowed to use any realm. */
  realms: z.array(NamePattern).default([]),
  /** If this member is absent, the key is not allowed to use any process. */
  processes: z.array(NamePattern).default([]),
  expires: z.iso
    .datetime({ offset: true, error: 'must be a time such as 2027-01-31T00:00:00Z' })
    .optional(),
})
export type KeyEntry = z.output<typeof KeyEntry>

/** Returns the digest that a key file contains for a key: its SHA-256 in hex digits. */
export const digestOf = (key: string): string => hash('sha256', key, 'hex')

/**
 * Parses the content of a key file. If the content is not valid, `faults` has a line for each fault. A line contains
 * the position and the id of the key and the violated rule, but no other value of the file.
 */
export function parseKeyList(text: string): ParsedList<KeyEntry> {
  const json = parseJson(text.replace(/^\uFEFF/, ''), OWN_TEXT)
  if (json === undefined) return { list: null, faults: ['is not JSON'] }
  const parsed = z.array(KeyEntry).safeParse(json)
  const faults = parsed.success
    ? [...repetitions(parsed.data, 'id'), ...repetitions(parsed.data, 'sha256')]
    : parsed.error.issues.map((issue) => faultOf(json, issue))
  return parsed.success && faults.length === 0
    ? { list: parsed.data, faults: [] }
    : { list: null, faults }
}

function faultOf(json: unknown, { path, code, message, ...issue }: z.core.$ZodIssue): string {
  const [index, ...member] = path
  if (typeof index !== 'number') return 'must be a list of keys'
  // The report names an unknown member, because a key with a misspelled `expires`, for example, would never expire. The
  // name is shortened and printed as JSON, because it comes from the file.
  const what =
    code === 'unrecognized_keys' && 'keys' in issue
      ? `unknown member ${issue.keys.map((key) => JSON.stringify(key.slice(0, 40))).join(', ')}`
      : message
  return `${keyAt(json, index)}: ${member.length > 0 ? `${member.map(String).join('.')}: ` : ''}${what}`
}

function keyAt(json: unknown, index: number): string {
  const id: unknown = Array.isArray(json) ? (json[index] as { id?: unknown } | null)?.id : undefined
  return KeyId.safeParse(id).success ? `key ${index + 1} (${String(id)})` : `key ${index + 1}`
}

function repetitions(keys: readonly KeyEntry[], member: 'id' | 'sha256'): readonly string[] {
  const seen = new Set<string>()
  return keys.flatMap((key, index) => {
    const isRepeated = seen.has(key[member])
    seen.add(key[member])
    return isRepeated ? [`key ${index + 1} (${key.id}): ${member} is that of an earlier key`] : []
  })
}

/**
 * Returns the name of a key in texts for persons. A key of `SERVICE_API_KEY(S)` has no id of its own, only digits of its
 * digest, so the name says where the key comes from.
 *
 * @param id the id of a key, or the name of a person, which stays as it is
 */
export const keyName = (id: string): string =>
  /^[0-9a-f]{8}$/.test(id) ? `SERVICE_API_KEY (${id})` : id

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
