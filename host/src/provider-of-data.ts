import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { StartupError } from '@integration-host/shared/process/lifecycle'

export type Provider = 'sandbox' | 'real'

const FILE = 'provider'
const described: Readonly<Record<Provider, string>> = {
  sandbox: 'the sandbox provider',
  real: 'a real provider',
}

/**
 * Checks that the companies of a data folder are connected to `provider`, which is either the sandbox or a real
 * provider. Another provider would reject their refresh tokens, and each company would have to be connected again.
 *
 * @throws {StartupError} the data folder was used with the other provider.
 */
export function requireProvider(dataDir: string, provider: Provider): void {
  const noted = recordedProvider(dataDir)
  if (noted === '' || noted === provider) return
  throw new StartupError(
    `${dataDir} has companies of ${noted === 'real' ? described.real : described.sandbox}, not of ${described[provider]}: set DATA_DIR to another folder, or remove this one`,
  )
}

/**
 * Records in the data folder to which provider its companies are connected. An existing record is kept.
 */
export function recordProvider(dataDir: string, provider: Provider): void {
  if (recordedProvider(dataDir) === '') writeFileSync(join(dataDir, FILE), provider)
}

/**
 * Returns the recorded provider. Returns an empty text if none is recorded, or if a power failure has left the file
 * without content.
 */
function recordedProvider(dataDir: string): string {
  const path = join(dataDir, FILE)
  return existsSync(path) ? readFileSync(path, 'utf8') : ''
}
