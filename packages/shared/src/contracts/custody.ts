/** Requests and documents for moving credentials to another installation, and for changing the encryption key. */
import { z } from 'zod'
import { CredentialName } from './realm.ts'

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
