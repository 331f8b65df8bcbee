import { randomBytes } from 'node:crypto'
import { chmodSync, existsSync, mkdirSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Environment } from '@integration-host/shared/process/config'
import { generateKeyRing } from '@integration-host/shared/secrets/envelope'
import { StartupError } from '@integration-host/shared/process/lifecycle'

const random = (): string => randomBytes(32).toString('base64url')

const secrets = [
  { setting: 'SERVICE_API_KEY', file: 'service_api_key', make: random },
  { setting: 'CREDENTIAL_KEYS', file: 'credential_keys', make: () => generateKeyRing().reveal() },
  { setting: 'CLIENT_SECRET', file: 'client_secret', make: random },
] as const

/**
 * Returns `X_FILE` settings for the secrets that the environment does not set. The first start generates these secrets
 * in `<dataDir>/secrets` (mode 0600), and later starts reuse them. The encryption keys are not in the file of the
 * credentials that they encrypt.
 *
 * @throws {StartupError} the data folder has stored credentials but no file with their keys; newly generated keys could
 * not decrypt the credentials.
 */
export function embeddedSecrets(dataDir: string, env: Environment): Environment {
  const folder = join(dataDir, 'secrets')
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  const settings: Record<string, string> = {}
  for (const { setting, file, make } of secrets) {
    if (env[setting] || env[`${setting}_FILE`]) continue
    const path = join(folder, file)
    settings[`${setting}_FILE`] = path
    const credentials = join(dataDir, 'credentials.json')
    if (setting === 'CREDENTIAL_KEYS' && existsSync(credentials) && !existsSync(path)) {
      throw new StartupError(
        `${path} is missing, and ${credentials} cannot be read without it: restore it from a backup, or move ${credentials} away and connect the companies again`,
      )
    }
    try {
      writeFileSync(path, make(), { mode: 0o600, flag: 'wx' })
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
      if ((statSync(path).mode & 0o077) !== 0) chmodSync(path, 0o600)
    }
  }
  return settings
}
