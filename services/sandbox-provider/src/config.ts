import {
  type Environment,
  httpUrl,
  listenSettings,
  parseConfig,
  secret,
} from '@integration-host/shared/process/config'
import { z } from 'zod'
import { personalityNames } from './control/personalities.ts'

const Settings = z.object({
  ...listenSettings(7220),
  /** The one client that is registered here. */
  CLIENT_ID: z.string().regex(/^[\x20-\x7e]{1,256}$/, 'must be 1 to 256 printable characters'),
  CLIENT_SECRET: secret(),
  /** How the provider behaves (control/personalities.ts); `PUT /sandbox/settings` changes it at run time. */
  PERSONALITY: z.enum(personalityNames).default('intuit'),
  /** Registered redirect URIs, compared character by character; unset: any on the loopback interface. */
  REDIRECT: z
    .string()
    .transform((list) => list.split(',').map((uri) => uri.trim()))
    .pipe(z.array(z.url({ protocol: /^https?$/, error: 'must be a comma list of http(s) URLs' })))
    .optional(),
  /** How services reach this provider: the issuer and everything called from server to server. */
  BASE_URL: httpUrl().optional(),
  /** Keeps grants and companies over a restart; unset: they end with the process. */
  STATE_FILE: z.string().optional(),
  /** How a browser reaches it: the authorization endpoint. */
  BROWSER_URL: httpUrl().optional(),
})
export type Config = z.output<typeof Settings>
/** Every setting of the service, for the reference in docs/settings.md. */
export const reference = Settings

/** Reads the settings. @throws {ConfigError} naming every wrong or missing one. */
export const readConfig = (env: Environment = process.env): Config => parseConfig(Settings, env)
