/**
 * Reads the secret that encrypts exported credentials. The secret is never a command-line argument, because every
 * process on the machine can read the arguments of other processes.
 */
import { readFile } from 'node:fs/promises'
import { parseConfig, secret } from '@integration-host/shared/process/config'
import { reasonOf } from '@integration-host/shared/observability/health'
import { Secret } from '@integration-host/shared/secrets/secret'
import { z } from 'zod'
import { texts } from './command.ts'
import { UsageError } from './exit-code.ts'
import { usable } from './settings.ts'
import { promptSecret, isInteractive, type Terminal } from './terminal.ts'

export const transferOptions = texts('passphrase-file', 'key-file')

export const transferOptionsHelp = `  --passphrase-file FILE   holds the passphrase, at least 12 characters
  --key-file FILE          holds a key instead: 32 bytes as base64 (openssl rand -base64 32)
Without either, EXPORT_PASSPHRASE or EXPORT_PASSPHRASE_FILE; otherwise the passphrase is prompted for.`

/** The members of a request that contain the secret. */
export type TransferSecret = () => { readonly Passphrase: string } | { readonly Key: string }

const MIN_LENGTH = 12
const Settings = z.object({ EXPORT_PASSPHRASE: secret().optional() })

/**
 * Returns the passphrase or key, from a file, the environment or a prompt. If `isNew` is set, the user must enter the
 * passphrase twice.
 *
 * @throws {UsageError} the secret is missing or invalid.
 */
export async function readTransferSecret(
  values: { readonly [option in keyof typeof transferOptions]?: string | undefined },
  terminal: Terminal,
  { isNew }: { readonly isNew: boolean },
): Promise<TransferSecret> {
  const { 'passphrase-file': passphraseFile, 'key-file': keyFile } = values
  if (passphraseFile !== undefined && keyFile !== undefined)
    throw new UsageError('Either --passphrase-file or --key-file, not both')
  if (keyFile !== undefined) {
    const key = await readSecretFile('--key-file', keyFile)
    const bytes = Buffer.from(key.reveal(), 'base64')
    if (bytes.length !== 32 || bytes.toString('base64') !== key.reveal())
      throw new UsageError('--key-file must hold 32 bytes as base64')
    return () => ({ Key: key.reveal() })
  }
  const passphrase =
    passphraseFile === undefined
      ? (usable(() => parseConfig(Settings, terminal.env)).EXPORT_PASSPHRASE ??
        (await promptForPassphrase(terminal, isNew)))
      : await readSecretFile('--passphrase-file', passphraseFile)
  if (passphrase.reveal().length < MIN_LENGTH)
    throw new UsageError(`The passphrase must have at least ${MIN_LENGTH} characters`)
  return () => ({ Passphrase: passphrase.reveal() })
}

async function promptForPassphrase(terminal: Terminal, isNew: boolean): Promise<Secret> {
  if (!isInteractive(terminal)) {
    throw new UsageError(
      'A passphrase or key is needed: --passphrase-file, --key-file or EXPORT_PASSPHRASE',
    )
  }
  return isNew ? promptTwice(terminal, 'Passphrase') : promptSecret(terminal, 'Passphrase: ')
}

/**
 * Prompts twice for a new secret. `what` is the name of the secret in the prompts.
 *
 * @throws {UsageError} the two inputs differ.
 */
export async function promptTwice(terminal: Terminal, what: string): Promise<Secret> {
  const first = await promptSecret(terminal, `${what}: `)
  if ((await promptSecret(terminal, `Repeat the ${what.toLowerCase()}: `)).equals(first.reveal()))
    return first
  throw new UsageError(`The ${what.toLowerCase()}s differ`)
}

/** Reads a secret from the file that an option names. @throws {UsageError} the file cannot be read. */
export async function readSecretFile(option: string, path: string): Promise<Secret> {
  try {
    return new Secret((await readFile(path, 'utf8')).replace(/\r?\n$/, ''))
  } catch (error) {
    throw new UsageError(`${option} cannot be read (${reasonOf(error)})`)
  }
}
