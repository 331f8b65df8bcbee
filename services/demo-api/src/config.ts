import {
  type Environment,
  httpUrl,
  listenSettings,
  parseConfig,
  serviceKeys,
} from '@integration-host/shared/process/config'
import { z } from 'zod'

/** The service's name in its log and its OpenAPI document. Metrics and traces use the name `demo-api`. */
export const SERVICE_TITLE = 'DemoAPI'

const HOST_NAME = /^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$/

const Settings = z.object({
  ...listenSettings(7216),
  COORDINATOR_URL: httpUrl().default('http://127.0.0.1:7219'),
  /** Service keys of the coordinator. Every call to it presents the first key of the list. */
  SERVICE_API_KEY: serviceKeys(),
  /** Host names, such as `demo-api`, that requests may name in `Host` in addition to the loopback names. */
  ALLOWED_HOSTS: z
    .string()
    .transform((list) => list.split(',').map((name) => name.trim().toLowerCase()))
    .pipe(z.array(z.string().regex(HOST_NAME, 'must be a comma list of host names without ports')))
    .default([]),
})
export type Config = z.output<typeof Settings>
/** The schema of all settings, from which `npm run docs` generates docs/settings.md. */
export const reference = Settings

/** Reads the settings from the environment. @throws {ConfigError} names every invalid or missing setting. */
export const readConfig = (env: Environment = process.env): Config => parseConfig(Settings, env)
