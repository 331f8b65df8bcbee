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
 * Returns `X_FILE` settings for the secrets that the environment does not set. The first start generates them in
 * `<dataDir>/secrets` (mode 0600), outside the file of the credentials that they encrypt; later starts reuse them.
 *
 * @throws {StartupError} credentials are stored, but the file of their keys is missing: new keys could not decrypt them.
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
