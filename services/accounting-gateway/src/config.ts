import {
  backendUrl,
  type Environment,
  httpUrl,
  integer,
  listenSettings,
  onOff,
  parseConfig,
  serviceKeys,
} from '@integration-host/shared/process/config'
import { providerProfile } from '@integration-host/shared/provider-profile/profiles'
import type { ProviderLimits } from '@integration-host/shared/provider-profile/provider-profile'
import { z } from 'zod'

const shape = {
  ...listenSettings(7218),
  SERVICE_API_KEY: serviceKeys(),
  TOKEN_SERVICE_URL: httpUrl().default('http://127.0.0.1:7217'),
  /** The accounting API. Has precedence over `accounting_url` of the discovery document and over the profile. */
  ACCOUNTING_URL: httpUrl().optional(),
  /** Fetched exactly as configured: a trailing slash or a query is not removed. */
  DISCOVERY_URL: z.url({ protocol: /^https?$/, error: 'must be an http(s) URL' }).optional(),
  PROVIDER_PROFILE: providerProfile(),
  // Each of the limits that follow replaces the value of PROVIDER_PROFILE if it is set.
  REQUESTS_PER_SECOND: integer(1, 100_000).optional(),
  REQUESTS_PER_MINUTE: integer(1, 1_000_000).optional(),
  CONCURRENT_REQUESTS: integer(1, 10_000).optional(),
  BATCHES_PER_MINUTE: integer(1, 1_000_000).optional(),
  HOLD_SECONDS: integer(1, 3_600).optional(),
  /** Intuit accepts uploads of 100 MB. The limit cannot be switched off. */
  LONGEST_BODY_MB: integer(1, 100_000).default(1_024),
  /** Time from the arrival of a call to the first byte of its response, including retries and waits. */
  DEADLINE_SECONDS: integer(1, 119).default(110),
  METRICS_BY_REALM: onOff(),
  /** `off`: `node:http` serves every connection (src/fast-path). */
  FAST_PATH: onOff('on'),
}

const backends = {
  REDIS_URL: backendUrl(/^rediss?$/, 'redis://127.0.0.1:6379').optional(),
  REDIS_KEY_PREFIX: z.string().max(64).default(''),
  AMQP_URL: backendUrl(/^amqps?$/, 'amqp://127.0.0.1:5672'),
  AMQP_PREFIX: z.string().max(64).default(''),
}

// Zod runs cross-field checks only if every field is valid. With `when` this error is reported together with theirs.
const requiresUpstream = {
  error:
    'set ACCOUNTING_URL, or set DISCOVERY_URL to a document that contains accounting_url or belongs to a provider known to PROVIDER_PROFILE',
  when: () => true,
}
const namesUpstream = (settings: {
  ACCOUNTING_URL?: string | undefined
  DISCOVERY_URL?: string | undefined
}): boolean => settings.ACCOUNTING_URL !== undefined || settings.DISCOVERY_URL !== undefined

const EmbeddedConfig = z.object(shape).refine(namesUpstream, requiresUpstream)
const MainConfig = z.object({ ...shape, ...backends }).refine(namesUpstream, requiresUpstream)

/** All settings of the service, for the reference in docs/settings.md. */
export const reference = MainConfig

/** The settings of the service without those of its backends. */
export type Config = z.output<typeof EmbeddedConfig>

/** @throws {ConfigError} which names every invalid setting. */
export const readConfig = (env: Environment): z.output<typeof MainConfig> =>
  parseConfig(MainConfig, env)

/** Reads the settings without those of backends, for the embedded host. */
export const readEmbeddedConfig = (env: Environment): Config => parseConfig(EmbeddedConfig, env)

/** Returns the limits of the profile, each replaced by its setting if that is set. */
export function limitsOf(config: Config): ProviderLimits {
  const { calls, batchesPerMinute, coolDownSeconds } = config.PROVIDER_PROFILE.accounting.limits
  return {
    calls: {
      perSecond: config.REQUESTS_PER_SECOND ?? calls.perSecond,
      perMinute: config.REQUESTS_PER_MINUTE ?? calls.perMinute,
      concurrent: config.CONCURRENT_REQUESTS ?? calls.concurrent,
    },
    batchesPerMinute: config.BATCHES_PER_MINUTE ?? batchesPerMinute,
    coolDownSeconds: config.HOLD_SECONDS ?? coolDownSeconds,
  }
}
