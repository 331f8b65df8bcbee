import {
  type Environment,
  httpUrl,
  listenSettings,
  parseConfig,
  serviceKeys,
} from '@integration-host/shared/process/config'
import { z } from 'zod'

/** The service's name in its log and its OpenAPI document. Metrics, traces and settings know it as `demo-api`. */
export const SERVICE_TITLE = 'DemoAPI'

const HOST_NAME = /^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$/

const Settings = z.object({
  ...listenSettings(7216),
  COORDINATOR_URL: httpUrl().default('http://127.0.0.1:7219'),
  /** The service key for the coordinator; the first one of the list. */
  SERVICE_API_KEY: serviceKeys(),
  /** Host names that it is served under in addition to the loopback names, such as `demo-api`. */
  ALLOWED_HOSTS: z
    .string()
    .transform((list) => list.split(',').map((name) => name.trim().toLowerCase()))
    .pipe(z.array(z.string().regex(HOST_NAME, 'must be a comma list of host names without ports')))
    .default([]),
})
export type Config = z.output<typeof Settings>
/** Every setting of the service, for the reference in docs/settings.md. */
export const reference = Settings

/** Reads the settings. @throws {ConfigError} naming every wrong or missing one. */
export const readConfig = (env: Environment = process.env): Config => parseConfig(Settings, env)
