/** Encrypts credentials into a document for another installation, and decrypts such documents. */
import { createCipheriv, createDecipheriv, randomBytes, scrypt } from 'node:crypto'
import { promisify } from 'node:util'
import { z } from 'zod'
import type { ExportDocument } from '@integration-host/shared/contracts/custody'
import { StoredLabel, StoredTags } from '@integration-host/shared/contracts/text'
import { CredentialName } from '@integration-host/shared/contracts/realm'
import { IntegrationError } from '@integration-host/shared/errors'
import { DOCUMENT_LIMITS, parseJson } from '@integration-host/shared/json'
import { Secret } from '@integration-host/shared/secrets/secret'

/** The secret that encrypts a document. */
export type DocumentSecret =
  | { readonly kind: 'passphrase'; readonly passphrase: Secret }
  | { readonly kind: 'key'; readonly key: Buffer }

const secret = z
  .string()
  .min(1)
  .transform((text) => new Secret(text))

/** A time in epoch ms, up to the year 9999. `toISOString` writes later years with a sign and six digits, or throws. */
const time = z.number().min(0).max(253_402_300_799_999)

export const ExportedCredential = z.object({
  name: CredentialName,
  environment: z.string(),
  // Documents of earlier releases contain no label and no tags. Importing such a document keeps the stored labels.
  label: StoredLabel.nullable().optional(),
  tags: StoredTags.optional(),
  // The version of the credential, which each later token pair increments. The limit ensures that the version stays an
  // exact integer in Redis and in JSON.
  version: z
    .int()
    .positive()
    .max(2 ** 52),
  expiresAt: time,
  refreshedAt: time,
  idleExpiresAt: time,
  hardExpiresAt: time.nullable(),
  accessToken: secret.nullable(),
  refreshToken: secret.nullable(),
  idToken: secret.nullable(),
  previous: z.object({ token: secret, retiredAt: time }).nullable(),
})
/** A credential with everything that the importing installation stores. Times are epoch ms. */
export type ExportedCredential = z.output<typeof ExportedCredential>

const FORMAT = 'integration-host-credentials/1'
// The scrypt parameters that OWASP recommends. One key derivation uses 128 MiB for a third of a second.
const SCRYPT = { N: 131_072, r: 8, p: 1 } as const
const TAG_BYTES = 16

const derive = promisify(scrypt) as (
  passphrase: string,
  salt: Buffer,
  bytes: number,
  options: { N: number; r: number; p: number; maxmem: number },
) => Promise<Buffer>

/** Returns the key of a document. Deriving it from a passphrase needs 128 MiB. */
function keyOf(sealedWith: DocumentSecret, salt: Buffer): Promise<Buffer> {
  if (sealedWith.kind === 'key') return Promise.resolve(sealedWith.key)
  return derive(sealedWith.passphrase.reveal(), salt, 32, { ...SCRYPT, maxmem: 256 * 1024 * 1024 })
}

/**
 * Encodes the members of the document that are authenticated but not encrypted. Equal members always give the same
 * text.
 */
const additionalData = ({
  Format,
  ExportedAt,
  Names,
  Kdf,
}: Omit<ExportDocument, 'Nonce' | 'Ciphertext'>) =>
  Buffer.from(
    JSON.stringify([Format, ExportedAt, Names, Kdf.Name, 'Salt' in Kdf ? Kdf.Salt : null]),
  )

/** Encrypts credentials into a document with AES-256-GCM. `now` is epoch ms. */
export async function sealDocument(
  credentials: readonly ExportedCredential[],
  sealedWith: DocumentSecret,
  now: number,
): Promise<ExportDocument> {
  const salt = randomBytes(16)
  const nonce = randomBytes(12)
  const open = {
    Format: FORMAT,
    ExportedAt: new Date(now).toISOString(),
    Names: credentials.map(({ name }) => name),
    Kdf:
      sealedWith.kind === 'key'
        ? { Name: 'none' as const }
        : { Name: 'scrypt' as const, ...SCRYPT, Salt: salt.toString('base64') },
  } as const
  const key = await keyOf(sealedWith, salt)
  const cipher = createCipheriv('aes-256-gcm', key, nonce, { authTagLength: TAG_BYTES })
  cipher.setAAD(additionalData(open))
  const text = JSON.stringify(credentials.map(revealed))
  const sealed = Buffer.concat([cipher.update(text, 'utf8'), cipher.final(), cipher.getAuthTag()])
  return { ...open, Nonce: nonce.toString('base64'), Ciphertext: sealed.toString('base64') }
}

/** Returns a credential in the form that `ExportedCredential` parses. The secrets are plain text. */
export const revealed = ({
  accessToken,
  refreshToken,
  idToken,
  previous,
  ...rest
}: ExportedCredential): z.input<typeof ExportedCredential> => ({
  ...rest,
  accessToken: accessToken?.reveal() ?? null,
  refreshToken: refreshToken?.reveal() ?? null,
  idToken: idToken?.reveal() ?? null,
  previous: previous === null ? null : { ...previous, token: previous.token.reveal() },
})

/**
 * Decrypts a document.
 *
 * @throws {IntegrationError} `invalid_request`: the passphrase or key is wrong, or the document was changed.
 */
export async function openDocument(
  document: ExportDocument,
  sealedWith: DocumentSecret,
): Promise<readonly ExportedCredential[]> {
  const { Kdf } = document
  const isForKey = Kdf.Name === 'none'
  if (isForKey !== (sealedWith.kind === 'key'))
    throw invalid(`the document was sealed with a ${isForKey ? 'key' : 'passphrase'}`)
  const key = await keyOf(sealedWith, Buffer.from(Kdf.Name === 'none' ? '' : Kdf.Salt, 'base64'))
  const sealed = Buffer.from(document.Ciphertext, 'base64')
  if (sealed.length < TAG_BYTES) throw invalid('the document is truncated')
  const nonce = Buffer.from(document.Nonce, 'base64')
  const decipher = createDecipheriv('aes-256-gcm', key, nonce, { authTagLength: TAG_BYTES })
  decipher.setAAD(additionalData(document))
  decipher.setAuthTag(sealed.subarray(-TAG_BYTES))
  let text: string
  try {
    text =
      decipher.update(sealed.subarray(0, -TAG_BYTES), undefined, 'utf8') + decipher.final('utf8')
  } catch {
    throw invalid('the passphrase or key is wrong, or the document was changed')
  }
  try {
    return z.array(ExportedCredential).parse(parseJson(text, DOCUMENT_LIMITS))
  } catch {
    throw invalid('the document was decrypted, but holds no credentials in this format')
  }
}

const invalid = (why: string): IntegrationError => new IntegrationError('invalid_request', why)
