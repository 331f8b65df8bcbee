import { randomBytes } from 'node:crypto'
import { chmodSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { changeKeyList } from '@integration-host/shared/access/change-key-list'
import { entryOf, installationKeys, newKey } from '@integration-host/shared/access/key-list'
import type { Environment } from '@integration-host/shared/process/config'
import { generateKeyRing } from '@integration-host/shared/secrets/envelope'
import { Secret } from '@integration-host/shared/secrets/secret'
import { StartupError } from '@integration-host/shared/process/lifecycle'

const random = (): string => randomBytes(32).toString('base64url')

const secrets = [
  { setting: 'SERVICE_API_KEY', file: 'service_api_key', make: random },
  { setting: 'CREDENTIAL_KEYS', file: 'credential_keys', make: () => generateKeyRing().reveal() },
  { setting: 'CLIENT_SECRET', file: 'client_secret', make: random },
  { setting: 'WEBHOOK_VERIFIER_TOKENS', file: 'webhook_verifier_tokens', make: random },
] as const

/** The secrets that a real provider issues. They are generated for the sandbox only. */
const issuedByProvider: readonly string[] = ['CLIENT_SECRET', 'WEBHOOK_VERIFIER_TOKENS']

/**
 * The names of two files: one contains the key that applications use, the other is the list of accepted keys, as
 * digests (docs/access.md).
 */
const APPLICATION_KEY = 'application_key'
const CONSOLE_KEY = 'console_key'
const KEY_LIST = 'service_keys.json'

/**
 * Returns `X_FILE` settings for the secrets that the environment does not set. The first start generates these secrets
 * in `<dataDir>/secrets` (mode 0600), and later starts reuse them. The secrets that a provider issues are generated for
 * the sandbox only.
 *
 * The first start also makes a key for applications and lists its digest in `SERVICE_KEYS_FILE`. If an operator revokes
 * the key in that file, no later start lists it again. The encryption keys and the credentials that they encrypt are in
 * different files.
 *
 * @throws {StartupError} the data folder has stored credentials but no file with their keys. Newly generated keys could
 * not decrypt these credentials.
 */
export function embeddedSecrets(
  dataDir: string,
  env: Environment,
  isSandbox: boolean,
): Environment {
  const folder = join(dataDir, 'secrets')
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  const settings: Record<string, string> = {}
  for (const { setting, file, make } of secrets) {
    if (env[setting] || env[`${setting}_FILE`]) continue
    if (issuedByProvider.includes(setting) && !isSandbox) continue
    const path = join(folder, file)
    settings[`${setting}_FILE`] = path
    const credentials = join(dataDir, 'credentials.json')
    if (setting === 'CREDENTIAL_KEYS' && existsSync(credentials) && !existsSync(path)) {
      throw new StartupError(
        `${path} is missing, and ${credentials} cannot be read without it: restore it from a backup, or move ${credentials} away and connect the companies again`,
      )
    }
    create(path, make)
  }
  if (!env['SERVICE_KEYS_FILE']) {
    settings['SERVICE_KEYS_FILE'] = join(folder, KEY_LIST)
    createKeyList(folder)
  }
  return settings
}

/**
 * Returns the setting with the key of the console, which acts for the persons who have signed in. The first call makes
 * the key and adds its digest to the key list. `settings` is the result of {@link embeddedSecrets}. If the environment
 * sets the key list or a key for the console, no key is made and the result is empty.
 */
export async function consoleKey(settings: Environment, env: Environment): Promise<Environment> {
  const list = settings['SERVICE_KEYS_FILE']
  if (list === undefined || env['OPERATOR_API_KEY'] || env['OPERATOR_API_KEY_FILE']) return {}
  const path = join(dirname(list), CONSOLE_KEY)
  if (!existsSync(path)) {
    const { key, entry } = newKey(installationKeys.console)
    // The list is changed before the key is stored. If this process ends in between, the next start replaces the entry
    // in the list.
    await changeKeyList(list, (keys) => [...keys.filter(({ id }) => id !== entry.id), entry])
    create(path, () => key.reveal())
  }
  return { OPERATOR_API_KEY_FILE: path }
}

/**
 * Returns the path of the file with the key for applications; `null` if `settings` do not contain that file. `settings`
 * is the result of {@link embeddedSecrets}.
 */
export function applicationKeyFile(settings: Environment): string | null {
  const list = settings['SERVICE_KEYS_FILE']
  return list === undefined ? null : join(dirname(list), APPLICATION_KEY)
}

function createKeyList(folder: string): void {
  const list = join(folder, KEY_LIST)
  if (existsSync(list)) return
  const path = join(folder, APPLICATION_KEY)
  create(path, () => newKey(installationKeys.application).key.reveal())
  // The key is read from its file, because an earlier start may have created the key and ended before it wrote the
  // list.
  const key = new Secret(readFileSync(path, 'utf8').trim())
  create(list, () => JSON.stringify([entryOf(key, installationKeys.application)], null, 2))
}

/** Writes a file that only its owner can read, unless the file exists. */
function create(path: string, make: () => string): void {
  try {
    writeFileSync(path, make(), { mode: 0o600, flag: 'wx' })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    if ((statSync(path).mode & 0o077) !== 0) chmodSync(path, 0o600)
  }
}
