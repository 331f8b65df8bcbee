import { keyFile } from '@integration-host/shared/access/access-keys'
import { forwardProxySettings } from '@integration-host/shared/http/forward-proxy/forward-proxy'
import { amqpUrl } from '@integration-host/shared/messaging/rabbitmq/address'
import {
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
import { redisUrl } from '@integration-host/shared/redis/address'
import { tlsSettings } from '@integration-host/shared/tls/tls-files'
import { z } from 'zod'

const shape = {
  ...listenSettings(7218),
  SERVICE_API_KEY: serviceKeys(),
  SERVICE_KEYS_FILE: keyFile().optional(),
  TOKEN_SERVICE_URL: httpUrl().default('http://127.0.0.1:7217'),
  /**
   * Base URL of the accounting API. This setting takes precedence over `accounting_url` of the discovery document and
   * over the address in the provider profile.
   */
  ACCOUNTING_URL: httpUrl().optional(),
  /**
   * URL of the provider's discovery document. The URL is fetched exactly as configured, with any trailing slash or
   * query.
   */
  DISCOVERY_URL: z.url({ protocol: /^https?$/, error: 'must be an http(s) URL' }).optional(),
  PROVIDER_PROFILE: providerProfile(),
  // Each of the next five limits is optional. If set, it overrides the limit of PROVIDER_PROFILE.
  REQUESTS_PER_SECOND: integer(1, 100_000).optional(),
  REQUESTS_PER_MINUTE: integer(1, 1_000_000).optional(),
  CONCURRENT_REQUESTS: integer(1, 10_000).optional(),
  BATCHES_PER_MINUTE: integer(1, 1_000_000).optional(),
  HOLD_SECONDS: integer(1, 3_600).optional(),
  /**
   * Maximum size of a request body. The default is far above the 100 MB that Intuit accepts for uploads. The limit
   * cannot be switched off.
   */
  LONGEST_BODY_MB: integer(1, 100_000).default(1_024),
  /** Maximum time from the arrival of a call to the first byte of its response, including retries and waits. */
  DEADLINE_SECONDS: integer(1, 119).default(110),
  /** The number of metered calls per month that the provider's plan allows, over all companies. */
  MONTHLY_BUDGET: integer(1, 1_000_000_000).optional(),
  METRICS_BY_REALM: onOff(),
  /** `off` disables the fast path (packages/fast-http), so that `node:http` serves every connection. */
  FAST_PATH: onOff('on'),
  ...forwardProxySettings(),
}

const backends = {
  REDIS_URL: redisUrl().optional(),
  ...tlsSettings('REDIS'),
  REDIS_KEY_PREFIX: z.string().max(64).default(''),
  AMQP_URL: amqpUrl(),
  ...tlsSettings('AMQP'),
  AMQP_PREFIX: z.string().max(64).default(''),
}

// Zod normally skips a check of several fields if one of the fields is invalid. `when` makes this check run always, so
// that all errors are reported together.
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

/** The schema of all settings, from which docs/settings.md is generated. */
export const reference = MainConfig

/** The gateway's settings without the connection settings of Redis and RabbitMQ. */
export type Config = z.output<typeof EmbeddedConfig>

/**
 * Reads all settings of the gateway process from the environment. @throws {ConfigError} names every invalid setting.
 */
export const readConfig = (env: Environment): z.output<typeof MainConfig> =>
  parseConfig(MainConfig, env)

/**
 * Reads the settings of a gateway in the embedded host, which runs all services in one OS process without Redis and
 * RabbitMQ.
 */
export const readEmbeddedConfig = (env: Environment): Config => parseConfig(EmbeddedConfig, env)

/**
 * Returns the limits for calls to the accounting API. A limit comes from the provider profile unless a setting
 * overrides it.
 */
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
