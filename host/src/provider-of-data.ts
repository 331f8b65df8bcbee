import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { StartupError } from '@integration-host/shared/process/lifecycle'

export type Provider = 'sandbox' | 'real'

const FILE = 'provider'
const described: Readonly<Record<Provider, string>> = {
  sandbox: 'the sandbox provider',
  real: 'a real provider',
}

/**
 * Records in a data folder whether its companies are connected to the sandbox or to a real provider. The other provider
 * would reject their refresh tokens, and each company would have to be connected again.
 *
 * @throws {StartupError} the data folder was used with the other provider.
 */
export function requireProvider(dataDir: string, provider: Provider): void {
  const path = join(dataDir, FILE)
  try {
    writeFileSync(path, provider, { flag: 'wx' })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
  const noted = readFileSync(path, 'utf8')
  if (noted === provider) return
  throw new StartupError(
    `${dataDir} has companies of ${noted === 'real' ? described.real : described.sandbox}, not of ${described[provider]}: set DATA_DIR to another folder, or remove this one`,
  )
}
