import { readFileSync } from 'node:fs'
import { parseEnv } from 'node:util'
import {
  ConfigError,
  type Environment,
  httpUrl,
  integer,
  parseConfig,
  serviceKeys,
} from '@integration-host/shared/process/config'
import { z } from 'zod'
import { STANDARD_PORTS } from './host.ts'
import type { Installation } from './story.ts'

/** The two settings of each service: its address, and the port at which Compose publishes it. */
const ADDRESSES = {
  tokenService: ['TOKEN_SERVICE_URL', 'TOKEN_SERVICE_PORT'],
  accountingGateway: ['GATEWAY_URL', 'ACCOUNTING_GATEWAY_PORT'],
  coordinator: ['COORDINATOR_URL', 'COORDINATOR_PORT'],
  demoApi: ['DEMO_API_URL', 'DEMO_API_PORT'],
} as const
type Name = keyof typeof ADDRESSES
const NAMES = Object.keys(ADDRESSES) as Name[]

const url = httpUrl().optional()
const port = integer(1, 65_535).optional()
const Settings = z.object({
  TOKEN_SERVICE_URL: url,
  TOKEN_SERVICE_PORT: port,
  GATEWAY_URL: url,
  ACCOUNTING_GATEWAY_PORT: port,
  COORDINATOR_URL: url,
  COORDINATOR_PORT: port,
  DEMO_API_URL: url,
  DEMO_API_PORT: port,
  SERVICE_API_KEY: serviceKeys(),
})

/**
 * Returns the addresses and the key of a running installation. Settings of the environment take precedence over those
 * of the file `envFile`, from which Compose reads its ports. The file need not exist.
 *
 * @throws {ConfigError} if a setting is wrong or missing, or if only some of the services have a URL. A service
 * without a URL would get its standard port, on which a service of another installation may listen. The demo could then
 * change both installations.
 */
export function readRunningInstallation(env: Environment, envFile: string): Installation {
  const settings = parseConfig(Settings, { ...readEnvFile(envFile), ...given(env) })
  const urls = NAMES.map((name) => ADDRESSES[name][0])
  const missing = urls.filter((setting) => settings[setting] === undefined)
  if (missing.length > 0 && missing.length < urls.length)
    throw new ConfigError(missing.map((setting) => `${setting}: is missing beside the other URLs`))
  const at = (name: Name): string => {
    const [address, published] = ADDRESSES[name]
    return settings[address] ?? `http://127.0.0.1:${settings[published] ?? STANDARD_PORTS[name]}`
  }
  return {
    tokenService: at('tokenService'),
    accountingGateway: at('accountingGateway'),
    coordinator: at('coordinator'),
    demoApi: at('demoApi'),
    serviceKey: settings.SERVICE_API_KEY[0].reveal(),
  }
}

/**
 * Returns the variables that are not empty. An empty variable counts as unset and does not hide the value in the
 * file.
 */
const given = (env: Environment): Environment =>
  Object.fromEntries(Object.entries(env).filter(([, value]) => value))

function readEnvFile(path: string): Environment {
  try {
    return parseEnv(readFileSync(path, 'utf8'))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return {}
    throw error
  }
}
