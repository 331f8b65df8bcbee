import { readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import {
  ConfigError,
  type Environment,
  httpUrl,
  parseConfig,
  serviceKeys,
} from '@integration-host/shared/config'
import type { Secret } from '@integration-host/shared/secret'
import { z } from 'zod'
import { UsageError } from './exit-code.ts'

const Settings = z.object({
  TOKEN_SERVICE_URL: httpUrl().default('http://127.0.0.1:7217'),
  SERVICE_API_KEY: serviceKeys().optional(),
})

const ROOT = join(import.meta.dirname, '../../..')
const loopback = new Set(['127.0.0.1', '[::1]', 'localhost'])

export interface Connection {
  readonly url: string
  readonly key: Secret
}

/**
 * Where token-service is and the key for it: `--url`, else the environment. Without a key in the environment
 * it is the one that the embedded host keeps in its data folder.
 *
 * @throws {UsageError} naming what is bad or missing.
 */
export function readConnection(url: string | undefined, env: Environment): Connection {
  const given = httpUrl().optional().safeParse(url)
  if (!given.success) throw new UsageError(`--url ${given.error.issues[0]?.message ?? 'is bad'}`)
  const settings = usable(() =>
    parseConfig(Settings, { ...env, ...(url !== undefined && { TOKEN_SERVICE_URL: url }) }),
  )
  const at = settings.TOKEN_SERVICE_URL
  const key = settings.SERVICE_API_KEY?.[0] ?? embeddedKey(at, env)
  if (key === null) {
    throw new UsageError(
      'A service key is needed: set SERVICE_API_KEY, or SERVICE_API_KEY_FILE to the file that holds it.',
    )
  }
  return { url: at, key }
}

/** Turns settings that are not usable into wrong usage. */
export function usable<T>(read: () => T): T {
  try {
    return read()
  } catch (error) {
    throw error instanceof ConfigError ? new UsageError(error.message) : error
  }
}

/** The embedded host listens on the loopback interface alone: its key is for nobody else. */
function embeddedKey(url: string, env: Environment): Secret | null {
  if (!loopback.has(new URL(url).hostname)) return null
  // As the host itself does, which runs in the root of the checkout.
  const file = join(resolve(ROOT, env['DATA_DIR'] || 'data'), 'secrets', 'service_api_key')
  try {
    return serviceKeys().parse(readFileSync(file, 'utf8').trim())[0]
  } catch {
    return null
  }
}
