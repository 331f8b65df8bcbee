import {
  type Environment,
  httpUrl,
  listenSettings,
  parseConfig,
  secret,
  verifierTokens,
} from '@integration-host/shared/process/config'
import { z } from 'zod'
import { personalityNames } from './control/personalities.ts'

const Settings = z
  .object({
    ...listenSettings(7220),
    /** The only client that is registered with this provider. */
    CLIENT_ID: z.string().regex(/^[\x20-\x7e]{1,256}$/, 'must be 1 to 256 printable characters'),
    CLIENT_SECRET: secret(),
    /**
     * The provider whose behaviour is imitated (control/personalities.ts). `PUT /sandbox/settings` changes it at run
     * time.
     */
    PERSONALITY: z.enum(personalityNames).default('intuit'),
    /**
     * The registered redirect URIs, compared character by character. If the setting is missing, any redirect URI with a
     * loopback host is accepted.
     */
    REDIRECT: z
      .string()
      .transform((list) => list.split(',').map((uri) => uri.trim()))
      .pipe(z.array(z.url({ protocol: /^https?$/, error: 'must be a comma list of http(s) URLs' })))
      .optional(),
    /** The address at which services reach this provider: the base of the issuer and of all endpoints that services call. */
    BASE_URL: httpUrl().optional(),
    /**
     * The file that stores grants and companies across restarts. If the setting is missing, grants and companies are lost
     * when the sandbox provider exits.
     */
    STATE_FILE: z.string().optional(),
    /**
     * The Disconnect URL of the application. The provider redirects the browser to this URL when a user disconnects a
     * company.
     */
    DISCONNECT_URL: httpUrl().optional(),
    /**
     * The address to which webhooks are sent when an object of a company changes. If the setting is missing, no
     * webhooks are sent.
     */
    WEBHOOK_URL: httpUrl().optional(),
    /** The verifier tokens. The first token signs the webhooks. The receiver has the same setting. */
    WEBHOOK_VERIFIER_TOKENS: verifierTokens().optional(),
    /** The address at which a browser reaches this provider: the base of the authorization endpoint. */
    BROWSER_URL: httpUrl().optional(),
  })
  .refine((settings) => settings.WEBHOOK_URL === undefined || settings.WEBHOOK_VERIFIER_TOKENS, {
    path: ['WEBHOOK_VERIFIER_TOKENS'],
    message: 'is missing: it signs the webhooks for WEBHOOK_URL',
  })
export type Config = z.output<typeof Settings>
/** The schema of all settings, from which `npm run docs` generates docs/settings.md. */
export const reference = Settings

/** Reads the settings from the environment. @throws {ConfigError} names every invalid or missing setting. */
export const readConfig = (env: Environment = process.env): Config => parseConfig(Settings, env)
