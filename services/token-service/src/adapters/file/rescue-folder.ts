/**
 * The folder `RESCUE_DIR`. It contains one file for each token pair that a process could not commit to the store before
 * it shut down. Each pair is encrypted with the key ring, and bound to the name and version of its credential.
 */
import { access, constants, mkdir, readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import { AuditFact } from '@integration-host/shared/contracts/audit'
import { CredentialName } from '@integration-host/shared/contracts/realm'
import { writeFileAtomic } from '@integration-host/shared/files/durable-file'
import { reasonOf } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'
import { StartupError } from '@integration-host/shared/process/lifecycle'
import { DecryptionError, type KeyRing } from '@integration-host/shared/secrets/envelope'
import type { ExpiryNoticeDays } from '../../credential/credential.ts'
import { ExportedCredential, revealed } from '../../credential/export-document.ts'
import type { KeptPair, RescueFolder } from '../../credential/restoration.ts'

const SUFFIX = '.rescue.json'
const FIELD = 'Rescue'

/**
 * The content of a rescue file: the encrypted token pair (an envelope), and the name and version to which the envelope
 * is bound.
 */
const RescueFile = z.object({
  Format: z.literal('integration-host-rescue/1'),
  Name: CredentialName,
  Version: z.int().positive(),
  Envelope: z.string(),
})

/** The decrypted content of the envelope in a rescue file. */
const RescuedPair = z.object({
  credential: ExportedCredential,
  grantId: z.string(),
  isNewGrant: z.boolean(),
  expiryNoticeDays: z.number().nullable(),
  isNoticeNew: z.boolean(),
  dueAt: z.number(),
  context: z.object({
    at: z.number(),
    who: z.string(),
    what: AuditFact.shape.What,
    reason: z.string().optional(),
  }),
})

/**
 * Opens the folder, and creates it if it does not exist.
 *
 * @throws {StartupError} if this process may not write to the folder.
 */
export async function openRescueFolder(
  folder: string,
  { keys, logger }: { readonly keys: KeyRing; readonly logger: Pick<Logger, 'error'> },
): Promise<RescueFolder> {
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 })
    await access(folder, constants.R_OK | constants.W_OK | constants.X_OK)
  } catch (error) {
    throw new StartupError(`RESCUE_DIR: ${folder} cannot be written (${reasonOf(error)})`, {
      cause: error,
    })
  }
  return {
    async save(pair) {
      const { name, version } = pair
      const place = { name, field: FIELD, version }
      const content: z.input<typeof RescueFile> = {
        Format: 'integration-host-rescue/1',
        Name: name,
        Version: version,
        Envelope: keys.seal(JSON.stringify(plaintextOf(pair)), place),
      }
      await writeFileAtomic(join(folder, `${name}.${version}${SUFFIX}`), JSON.stringify(content))
    },

    async read() {
      const found: { pair: KeptPair; remove: () => Promise<void> }[] = []
      for (const file of (await readdir(folder)).filter((one) => one.endsWith(SUFFIX))) {
        const path = join(folder, file)
        const pair = await readPair(path, keys).catch((error: unknown) => {
          const remedy =
            'Add the key that encrypted the file to CREDENTIAL_KEYS and restart, or delete the file.'
          logger.error(
            { file, reason: rejectionOf(error), remedy },
            'file in RESCUE_DIR cannot be read',
          )
          return null
        })
        if (pair !== null) found.push({ pair, remove: () => rm(path, { force: true }) })
      }
      return found
    },
  }
}

function plaintextOf(pair: KeptPair): z.input<typeof RescuedPair> {
  const { grant, grantId, isNewGrant, isNoticeNew, dueAt, context, version } = pair
  const { expiryNoticeDays, ...kept } = grant
  const { at, who, what, reason } = context
  return {
    credential: revealed({ ...kept, version }),
    grantId,
    isNewGrant,
    expiryNoticeDays,
    isNoticeNew,
    dueAt,
    context: { at, who, what, ...(reason !== undefined && { reason }) },
  }
}

async function readPair(path: string, keys: KeyRing): Promise<KeptPair> {
  const { Name, Version, Envelope } = RescueFile.parse(JSON.parse(await readFile(path, 'utf8')))
  const text = keys.open(Envelope, { name: Name, field: FIELD, version: Version })
  const { credential, expiryNoticeDays, ...rest } = RescuedPair.parse(JSON.parse(text))
  const { version, ...grant } = credential
  return {
    ...rest,
    name: Name,
    version,
    // The cast is safe, because the file content is authenticated: token-service itself wrote the value of
    // `expiryNoticeDays`.
    grant: { ...grant, expiryNoticeDays: expiryNoticeDays as ExpiryNoticeDays | null },
  }
}

/** Returns the reason why a rescue file could not be read, for the log. The reason contains nothing from the file. */
function rejectionOf(error: unknown): string {
  if (error instanceof DecryptionError) return 'it was encrypted with another key, or was changed'
  if (error instanceof SyntaxError || error instanceof z.ZodError)
    return 'it is not a file of this service'
  return reasonOf(error)
}
