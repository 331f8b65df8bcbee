/** Requests and documents for moving credentials to another installation, and for changing the encryption key. */
import { z } from 'zod'
import { CredentialName, Realm } from './realm.ts'
import { asObject, jsonExcess, parseJson } from '../json.ts'
import { Label, Tags } from './text.ts'

const base64 = (bytes: number) =>
  z
    .base64()
    .refine((text) => Buffer.from(text, 'base64').length === bytes, `must hold ${bytes} bytes`)

/**
 * Exported credentials, encrypted with AES-256-GCM. The key is given by the caller or derived from a passphrase. All
 * members except `Ciphertext` are additional authenticated data.
 */
export const ExportDocument = z
  .strictObject({
    Format: z.literal('integration-host-credentials/1'),
    ExportedAt: z.iso.datetime(),
    Names: z.array(CredentialName).min(1),
    Kdf: z.discriminatedUnion('Name', [
      z.strictObject({
        Name: z.literal('scrypt'),
        // The memory use of scrypt grows with its parameters. They are fixed, so that an imported document cannot
        // exhaust the memory.
        N: z.literal(131_072),
        r: z.literal(8),
        p: z.literal(1),
        Salt: base64(16),
      }),
      z.strictObject({ Name: z.literal('none') }),
    ]),
    Nonce: base64(12),
    Ciphertext: z.base64(),
  })
  .meta({ ref: 'ExportDocument' })
export type ExportDocument = z.output<typeof ExportDocument>

const secretMembers = {
  Passphrase: z.string().min(12, 'must have at least 12 characters').max(1_024).optional(),
  Key: base64(32).optional().meta({ description: '32 bytes as base64' }),
}
const hasOneSecret = ({ Passphrase, Key }: { Passphrase?: unknown; Key?: unknown }): boolean =>
  (Passphrase === undefined) !== (Key === undefined)
const ONE_SECRET = 'either Passphrase or Key is needed'

/** The maximum number of credentials in one export or import. */
export const MAX_TRANSFER = 500

/** The body of `POST /exports`. */
export const ExportRequest = z
  .strictObject({ Names: z.array(CredentialName).min(1).max(MAX_TRANSFER), ...secretMembers })
  .refine(hasOneSecret, ONE_SECRET)
  .meta({ ref: 'ExportRequest' })

/** The body of `POST /imports`. */
export const ImportRequest = z
  .strictObject({
    Document: ExportDocument,
    Overwrite: z.boolean().default(false).meta({
      description: 'even if this installation has a usable credential of that name',
    }),
    ...secretMembers,
  })
  .refine(hasOneSecret, ONE_SECRET)
  .meta({ ref: 'ImportRequest' })

export const ImportReport = z
  .object({
    imported: z.array(z.object({ Name: CredentialName, Version: z.int().positive() })),
    refused: z.array(z.object({ Name: CredentialName, Reason: z.string() })),
  })
  .meta({ ref: 'ImportReport' })
export type ImportReport = z.output<typeof ImportReport>

/**
 * The response of `GET /key-check`: one page of credentials, ordered by name. The service has tried to decrypt all
 * secrets of these credentials with the keys of the key ring.
 */
export const KeyCheckPage = z
  .object({
    Checked: z.int().nonnegative(),
    Refused: z.array(CredentialName).meta({
      description: 'no key of the ring decrypts them: changed, moved, or sealed with a removed key',
    }),
    next_cursor: z.string().nullable(),
  })
  .meta({ ref: 'KeyCheckPage' })
export type KeyCheckPage = z.output<typeof KeyCheckPage>

/**
 * One line of the response to `POST /key-rotations`. The lines report progress, and the last line contains
 * `IsFinished`. If no line contains `IsFinished`, the response was interrupted. A repeated request continues with
 * the remaining credentials.
 */
export const KeyRotationProgress = z.object({
  ActiveKey: z.string().meta({ description: 'id of the active key' }),
  Total: z.int().nonnegative().meta({ description: 'credentials at the start' }),
  Resealed: z.int().nonnegative(),
  Current: z.int().nonnegative().meta({ description: 'were already sealed with the active key' }),
  Refused: z.int().nonnegative().meta({ description: 'no key of the ring decrypts them' }),
  FirstRefused: z.array(CredentialName).meta({ description: 'at most ten of them' }),
  IsFinished: z.boolean(),
  RetiredKeys: z.array(z.string()).meta({
    description: 'ids that no credential needs any more: they may be removed from CREDENTIAL_KEYS',
  }),
})
export type KeyRotationProgress = z.output<typeof KeyRotationProgress>

/** The lines of `POST /imports/grants`. Each line is a grant that this installation takes over from another program. */

/** The maximum number of lines in one request. */
export const MAX_GRANT_LINES = 500

/** The maximum size of one line, in bytes. */
export const MAX_GRANT_LINE_BYTES = 16_384

/**
 * A refresh token consists of visible ASCII characters and spaces (RFC 6749, appendix A.17). The minimum length rejects
 * a line that contains a realm in place of the token.
 */
const RefreshToken = z
  .string()
  .regex(/^[\x20-\x7e]*$/, 'must consist of visible ASCII characters')
  .min(20, 'is too short for a refresh token')
  .max(4_096, 'is too long for a refresh token')

/** One grant of another program. */
export const GrantLine = z
  .strictObject({
    Realm,
    RefreshToken: RefreshToken.meta({
      description: 'the newest refresh token of the other program',
    }),
    Label: Label.optional(),
    Tags: Tags.optional(),
    Environment: Realm.optional().meta({ description: 'the default value is the realm' }),
  })
  .meta({ ref: 'Grant' })
export type GrantLine = z.output<typeof GrantLine>

/**
 * The result for one line. `stored`: the grant was refreshed and stored. `already_here`: this token was adopted before,
 * or the company is connected here, so no token was sent. `refused`: the provider or this installation rejected the
 * grant. `unavailable`: the line can be repeated later. `invalid`: the line is not a grant, so no token was sent.
 */
export const grantOutcomes = [
  'stored',
  'already_here',
  'refused',
  'unavailable',
  'invalid',
] as const
export type GrantOutcome = (typeof grantOutcomes)[number]

export const GrantResult = z
  .object({
    Line: z.int().positive().meta({ description: 'the number of the line in the body, from 1' }),
    Name: CredentialName.nullable().meta({ description: 'null if the line names no valid realm' }),
    Outcome: z.enum(grantOutcomes),
    Version: z.int().positive().optional().meta({ description: 'of the stored credential' }),
    Code: z
      .string()
      .optional()
      .meta({ description: "class of the failure, or the provider's error" }),
    Reason: z.string().optional(),
    TraceId: z.string().optional().meta({ description: "the provider's trace id" }),
  })
  .meta({ ref: 'GrantResult' })
export type GrantResult = z.output<typeof GrantResult>

export const GrantReport = z
  .object({
    stored: z.int().nonnegative(),
    already_here: z.int().nonnegative(),
    refused: z.int().nonnegative(),
    unavailable: z.int().nonnegative(),
    invalid: z.int().nonnegative(),
    retry_after: z
      .int()
      .nonnegative()
      .meta({ description: 'seconds until the unavailable lines should be sent again' }),
    results: z.array(GrantResult),
  })
  .meta({ ref: 'GrantReport' })
export type GrantReport = z.output<typeof GrantReport>

/** A line that is not a grant. `reason` contains no text of the line except names of members. */
export interface InvalidLine {
  readonly name: string | null
  readonly reason: string
}

/** Parses one line of newline-delimited JSON (NDJSON). */
export function parseGrantLine(text: string): GrantLine | InvalidLine {
  if (Buffer.byteLength(text) > MAX_GRANT_LINE_BYTES)
    return { name: null, reason: `has more than ${MAX_GRANT_LINE_BYTES} bytes` }
  const value = parseJson(text)
  return value === undefined
    ? { name: null, reason: jsonExcess(text) ?? 'is not JSON' }
    : grantOf(value)
}

/**
 * Validates one grant. The reason never contains a value of the line, because the value may be a token in the wrong
 * place.
 */
export function grantOf(value: unknown): GrantLine | InvalidLine {
  if (asObject(value) === null) return { name: null, reason: 'is not a JSON object' }
  const parsed = GrantLine.safeParse(value)
  if (parsed.success) return parsed.data
  const reasons = parsed.error.issues.slice(0, 3).map((issue) => {
    if (issue.code === 'unrecognized_keys')
      return `has unknown members${issue.keys.every(isMemberName) ? `: ${issue.keys.slice(0, 5).join(', ')}` : ''}`
    const member = issue.path.map(String).join('.')
    return `${member}: ${issue.code === 'invalid_type' ? 'is missing or not text' : issue.message}`
  })
  return { name: null, reason: reasons.join('; ') }
}

/**
 * Returns whether a member name may be shown. A name with digits is not shown, because it may be a token in the wrong
 * place.
 */
const isMemberName = (key: string): boolean => /^[A-Za-z_]{1,32}$/.test(key)

export const isGrantLine = (line: GrantLine | InvalidLine): line is GrantLine =>
  'RefreshToken' in line
