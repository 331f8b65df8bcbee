/** Reads the options of the commands `keys new`, `keys list` and `keys revoke`. */
import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { KeyEntry, KeyId, type KeyTerms } from '@integration-host/shared/access/key-list'
import type { Environment } from '@integration-host/shared/process/config'
import { invalidOption, validOption } from './command.ts'
import { UsageError } from './exit-code.ts'
import { embeddedSecretsFolder } from './settings.ts'
import { timeOf } from './times.ts'

/**
 * Returns the path of the key file: the value of `--file` or of `SERVICE_KEYS_FILE`, or else the key file of the
 * embedded host.
 *
 * @throws {UsageError} no path is given, and the embedded host has no key file.
 */
export function keyFileOf(given: string | undefined, env: Environment): string {
  const named = given ?? (env['SERVICE_KEYS_FILE'] || undefined)
  if (named !== undefined) return resolve(named)
  const embedded = join(embeddedSecretsFolder(env), 'service_keys.json')
  if (existsSync(embedded)) return embedded
  throw new UsageError('The key file is needed: --file, or SERVICE_KEYS_FILE')
}

/** Returns the value of `--id`. @throws {UsageError} the id is missing or not valid. */
export function keyIdOf(text: string | undefined): string {
  if (text === undefined) throw new UsageError('--id is needed')
  return validOption('--id', KeyId, text)
}

interface TermOptions {
  readonly id?: string | undefined
  readonly scope?: readonly string[] | undefined
  readonly realm?: readonly string[] | undefined
  readonly process?: readonly string[] | undefined
  readonly expires?: string | undefined
}

const optionOf = { scopes: '--scope', realms: '--realm', processes: '--process' } as const

/**
 * Returns the permissions of a new key from the options of `keys new`.
 *
 * @param now milliseconds since the epoch
 * @throws {UsageError} names the option that is missing or not valid.
 */
export function termsOf(options: TermOptions, now: number): KeyTerms {
  const parsed = KeyEntry.omit({ sha256: true }).safeParse({
    id: keyIdOf(options.id),
    scopes: listed(options.scope),
    realms: listed(options.realm),
    processes: listed(options.process),
    ...(options.expires !== undefined && { expires: expiryOf(options.expires, now) }),
  })
  if (!parsed.success) {
    const option = optionOf[parsed.error.issues[0]?.path[0] as keyof typeof optionOf]
    throw invalidOption(option, parsed.error)
  }
  const { scopes, realms, processes } = parsed.data
  // A key with one of these scopes needs a realm or process, because otherwise it could do nothing. A missing option
  // does not mean '*', so that no key gets more permissions than intended.
  const ofRealm = scopes.find((scope) => /^(?:gateway|credentials|custody):/.test(scope))
  if (ofRealm !== undefined && realms.length === 0)
    throw new UsageError(`--realm is needed for the scope ${ofRealm}; '*' stands for every company`)
  const ofProcess = scopes.find((scope) => scope.startsWith('transactions:'))
  if (ofProcess !== undefined && processes.length === 0)
    throw new UsageError(
      `--process is needed for the scope ${ofProcess}; '*' stands for every process`,
    )
  return parsed.data
}

/** Returns the parts of comma-separated lists. */
const listed = (lists: readonly string[] = []): string[] => [
  ...new Set(lists.flatMap((list) => list.split(',').map((part) => part.trim()))),
]

/** Returns a time in UTC without milliseconds. @throws {UsageError} the text is not a time, or the time has passed. */
function expiryOf(text: string, now: number): string {
  const time = new Date(timeOf('--expires', text, now, 'future'))
  if (time.getTime() <= now) throw new UsageError('--expires must be in the future')
  return time.toISOString().replace(/\.\d{3}Z$/, 'Z')
}
