import { existsSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { parseEnv } from 'node:util'
import { isLoopback } from '@integration-host/shared/http/origin-guard'
import {
  ConfigError,
  type Environment,
  httpUrl,
  parseConfig,
  serviceKeys,
} from '@integration-host/shared/process/config'
import { Secret } from '@integration-host/shared/secrets/secret'
import { parseJson, SERVICE_LIMITS } from '@integration-host/shared/json'
import { z } from 'zod'
import { validOption } from './command.ts'
import { UsageError } from './exit-code.ts'

/** The setting that holds the address of each service. */
export const addressOf = {
  'token-service': 'TOKEN_SERVICE_URL',
  'accounting-gateway': 'GATEWAY_URL',
  coordinator: 'COORDINATOR_URL',
  'demo-api': 'DEMO_API_URL',
  console: 'CONSOLE_URL',
} as const
export type ServiceName = keyof typeof addressOf

const Settings = z.object({
  TOKEN_SERVICE_URL: httpUrl().default('http://127.0.0.1:7217'),
  GATEWAY_URL: httpUrl().default('http://127.0.0.1:7218'),
  COORDINATOR_URL: httpUrl().default('http://127.0.0.1:7219'),
  DEMO_API_URL: httpUrl().default('http://127.0.0.1:7216'),
  CONSOLE_URL: httpUrl().default('http://127.0.0.1:7221'),
  SERVICE_API_KEY: serviceKeys().optional(),
})

const ROOT = join(import.meta.dirname, '../../..')

export interface Connection {
  readonly service: ServiceName
  readonly url: string
  readonly key: Secret
}

/**
 * Returns a service's address and key, from `--url` or the environment. If the environment has no key, the key that the
 * embedded host stores in its data folder is used.
 *
 * @throws {UsageError} names the invalid or missing setting.
 */
export function readConnection(
  service: ServiceName,
  url: string | undefined,
  env: Environment,
): Connection {
  const variable = addressOf[service]
  validOption('--url', httpUrl().optional(), url)
  const settings = readSettings({ ...env, ...(url !== undefined && { [variable]: url }) })
  const at = settings[variable]
  const key = settings.SERVICE_API_KEY?.[0] ?? embeddedKey(at, env)
  if (key === null) {
    throw new UsageError(
      'A service key is needed: set SERVICE_API_KEY, or SERVICE_API_KEY_FILE to the file that holds it; for an embedded host with another data folder, set DATA_DIR.',
    )
  }
  return { service, url: at, key }
}

/**
 * The services that the commands check. The console has no state of its own to check, because it only shows data of
 * these services.
 */
export type CheckedService = Exclude<ServiceName, 'console'>

/** The address of a service, and the service key if one is set. */
export interface ServiceAddress {
  readonly name: ServiceName
  readonly url: string
  readonly key: Secret | null
}

/** The settings with the addresses of services and backends. */
const ADDRESSES = [...Object.values(addressOf), 'REDIS_URL', 'DATABASE_URL', 'AMQP_URL'] as const

/**
 * Returns the address of every service. The default addresses are used only if the settings name no service or backend.
 * Otherwise the address of a service without a setting is `null`. Another installation may run at the default ports of
 * this machine, and a report must not mix two installations.
 *
 * @throws {UsageError} names the invalid setting.
 */
export function readServices(
  env: Environment,
): Readonly<Record<CheckedService, ServiceAddress | null>> {
  const settings = readSettings(env)
  const isSet = (name: string): boolean => Boolean(env[name] || env[`${name}_FILE`])
  const hasDefaults = !ADDRESSES.some(isSet)
  const of = (name: ServiceName): ServiceAddress | null => {
    const url = settings[addressOf[name]]
    if (!hasDefaults && !isSet(addressOf[name])) return null
    return { name, url, key: settings.SERVICE_API_KEY?.[0] ?? embeddedKey(url, env) }
  }
  return {
    'token-service': of('token-service'),
    'accounting-gateway': of('accounting-gateway'),
    coordinator: of('coordinator'),
    'demo-api': of('demo-api'),
  }
}

/**
 * Returns whether the commands act on an embedded host of this machine. This is the case if no setting names an address
 * or a key, and the embedded host has stored its key or its addresses.
 */
export const isEmbeddedHost = (env: Environment): boolean =>
  ![...ADDRESSES, 'SERVICE_API_KEY'].some((name) => env[name] || env[`${name}_FILE`]) &&
  [join(embeddedSecretsFolder(env), 'service_api_key'), addressesFile(env)].some(existsSync)

/** Returns the settings. The addresses of a running embedded host are in its data folder. */
const readSettings = (env: Environment) =>
  usable(() =>
    parseConfig(Settings, isEmbeddedHost(env) ? { ...env, ...storedAddresses(env) } : env),
  )

function storedAddresses(env: Environment): Environment {
  try {
    const text = readFileSync(addressesFile(env), 'utf8')
    const addresses = parseJson(text, SERVICE_LIMITS)
    return z.partialRecord(z.enum(Object.values(addressOf)), httpUrl()).parse(addresses)
  } catch {
    return {} // It does not run, or it is of an earlier version.
  }
}

const addressesFile = (env: Environment): string =>
  join(embeddedSecretsFolder(env), '../addresses.json')

/** Returns the secrets in `CLIENT_SECRET`, a comma-separated list, in the order in which token-service tries them. */
export const secretsOf = (list: Secret): Secret[] =>
  list
    .reveal()
    .split(',')
    .map((part) => new Secret(part.trim()))

/** Runs `read` and turns its {@link ConfigError} into a {@link UsageError}. */
export function usable<T>(read: () => T): T {
  try {
    return read()
  } catch (error) {
    throw error instanceof ConfigError ? new UsageError(error.message) : error
  }
}

/**
 * Returns the service key of the embedded host if `url` has a loopback host; otherwise `null`. The embedded host
 * listens on the loopback interface only, so its key must not be sent to another host. A key in the file `.env` of the
 * working directory takes precedence over the stored key, as in the commands `dev` and `start`.
 */
function embeddedKey(url: string, env: Environment): Secret | null {
  if (!isLoopback(new URL(url).hostname)) return null
  const own = usable(() => parseConfig(Settings.pick({ SERVICE_API_KEY: true }), dotEnv()))
  if (own.SERVICE_API_KEY !== undefined) return own.SERVICE_API_KEY[0]
  const file = join(embeddedSecretsFolder(env), 'service_api_key')
  try {
    return serviceKeys().parse(readFileSync(file, 'utf8').trim())[0]
  } catch {
    return null
  }
}

/**
 * Returns the folder in which the embedded host stores its keys. If the environment does not have `DATA_DIR`, this
 * function reads it from the file `.env` of the working directory, as the commands `dev` and `start` do. A relative
 * `DATA_DIR` is resolved against the working directory. If that folder does not exist, the path is resolved against the
 * root of the checkout, which is the working directory of `npm start`.
 */
export function embeddedSecretsFolder(env: Environment): string {
  const [own = '', ...others] = [process.cwd(), ROOT].map((base) =>
    join(resolve(base, env['DATA_DIR'] || dotEnv()['DATA_DIR'] || 'data'), 'secrets'),
  )
  return [own, ...others].find((folder) => existsSync(folder)) ?? own
}

/** Returns the variables of the file `.env` in the working directory; no variables if the file cannot be read. */
function dotEnv(): Readonly<NodeJS.Dict<string>> {
  try {
    return parseEnv(readFileSync('.env', 'utf8'))
  } catch {
    return {}
  }
}
