import {
  type Environment,
  httpUrl,
  listenSettings,
  parseConfig,
  serviceKeys,
} from '@integration-host/shared/process/config'
import { z } from 'zod'

/** The name of the service in its log and in its OpenAPI document. Metrics and traces use the name `demo-api`. */
export const SERVICE_TITLE = 'DemoAPI'

const HOST_NAME = /^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$/

const Settings = z.object({
  ...listenSettings(7216),
  COORDINATOR_URL: httpUrl().default('http://127.0.0.1:7219'),
  /**
   * Service keys of the coordinator. The demo API presents the first key of the list in each call to the coordinator.
   */
  SERVICE_API_KEY: serviceKeys(),
  /**
   * Additional host names that the `Host` header of a request may contain, such as `demo-api`. The loopback names are
   * always accepted.
   */
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
