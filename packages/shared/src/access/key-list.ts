import { z } from 'zod'
import type { ParsedList } from '../files/parsed-list.ts'
import { OWN_TEXT, parseJson } from '../json.ts'
import { SCOPES } from './scope.ts'

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
