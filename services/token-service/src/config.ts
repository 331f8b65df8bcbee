import { z } from 'zod'
import { keyFile } from '@integration-host/shared/access/access-keys'
import { forwardProxySettings } from '@integration-host/shared/http/forward-proxy/forward-proxy'
import { productSettings } from '@integration-host/shared/http/page'
import { trustedProxies } from '@integration-host/shared/http/peer-network'
import { amqpUrl } from '@integration-host/shared/messaging/rabbitmq/address'
import {
  ConfigError,
  type Environment,
  exactUrl,
  httpUrl,
  integer,
  listenSettings,
  onOff,
  parseConfig,
  secret,
  serviceKeys,
  keyRing,
} from '@integration-host/shared/process/config'
import { providerProfile } from '@integration-host/shared/provider-profile/profiles'
import { redisUrl } from '@integration-host/shared/redis/address'
import { Secret } from '@integration-host/shared/secrets/secret'
import { tlsSettings } from '@integration-host/shared/tls/tls-files'
import { auditSinks } from './audit-forwarding/forward-audit.ts'

const originList = () =>
  z
    .string()
    .transform((list) => list.split(',').map((origin) => origin.trim().replace(/\/$/, '')))
    .refine(
      (origins) =>
        origins.every((origin) => URL.canParse(origin) && new URL(origin).origin === origin),
      'must be a comma list of origins like https://app.example.com',
    )

/**
 * A comma-separated list of client secrets in order of preference. During a rotation at the provider, it contains both
 * the old and the new secret.
 */
const clientSecrets = () =>
  secret().transform((list, context) => {
    const parts = list
      .reveal()
      .split(',')
      .map((part) => part.trim())
    if (parts.every((part) => part !== '')) {
      return parts.map((part) => new Secret(part)) as [Secret, ...Secret[]]
    }
    context.addIssue({ code: 'custom', message: 'must not have an empty entry' })
    return z.NEVER
  })

const settings = {
  ...listenSettings(7217),
  SERVICE_API_KEY: serviceKeys(),
  SERVICE_KEYS_FILE: keyFile().optional(),
  PROVIDER_PROFILE: providerProfile(),
  DISCOVERY_URL: exactUrl(),
  CLIENT_ID: z.string().max(512, 'must have at most 512 characters'),
  CLIENT_SECRET: clientSecrets(),
  REDIRECT: exactUrl().refine((value) => !value.includes('?'), 'must have no query'),
  /** Base URL of the accounting API, where the names of companies are read; by default, the profile knows it. */
  ACCOUNTING_URL: httpUrl().optional(),
  ...productSettings(),
  SCOPE: z.string().default('openid com.intuit.quickbooks.accounting'),
  CREDENTIAL_KEYS: keyRing(),
  REFRESH_AHEAD_SECONDS: integer(0, 86_400).default(600),
  /** The idle limit of a grant in days. If absent, `idleLimitDays` of the provider profile applies. */
  IDLE_LIMIT_DAYS: integer(1, 3_650).optional(),
  METRICS_BY_REALM: onOff(),
  RETURN_TO_ORIGINS: originList().optional(),
  /**
   * Who can start an authorization: every browser at `GET /authorize` (`open`), or only a browser that opens a
   * connect link (`links`).
   */
  AUTHORIZE: z.enum(['links', 'open']).default('links'),
  /** Where the audit log is written as it grows; nowhere if absent. */
  AUDIT_TO: z.enum(auditSinks).optional(),
  /** The receiver of `AUDIT_TO=syslog`. */
  AUDIT_SYSLOG: z
    .url({ protocol: /^(?:udp|tcp)$/, error: 'must be udp://host:port or tcp://host:port' })
    .transform((value) => new URL(value))
    .refine(({ hostname, port }) => hostname !== '' && port !== '', 'must have a host and a port')
    .prefault('udp://127.0.0.1:514'),
  /** The receiver of `AUDIT_TO=webhook`. */
  AUDIT_WEBHOOK_URL: exactUrl().optional(),
  /** The bearer token of the requests to `AUDIT_WEBHOOK_URL`. */
  AUDIT_WEBHOOK_SECRET: secret(16)
    .refine((value) => /^[\x21-\x7e]{1,512}$/.test(value.reveal()), {
      error: 'must be at most 512 visible ASCII characters',
    })
    .optional(),
  /** The proxies whose header `X-Forwarded-For` names the client. Limits for browsers are counted for its network. */
  TRUSTED_PROXIES: trustedProxies(),
  ...forwardProxySettings(),
}

const EmbeddedConfig = z.object(settings)

const Config = EmbeddedConfig.extend({
  REDIS_URL: redisUrl(),
  ...tlsSettings('REDIS'),
  AMQP_URL: amqpUrl(),
  ...tlsSettings('AMQP'),
  /**
   * How many Redis replicas must acknowledge a write. If absent, the Redis server's setting `min-replicas-to-write`
   * applies, or 0 if that setting cannot be read.
   */
  REDIS_REPLICAS: integer(0, 9).optional(),
  REDIS_KEY_PREFIX: z.string().max(64, 'must have at most 64 characters').default(''),
  AUDIT_ENTRIES: integer(1_000, 100_000_000).default(100_000),
  RESCUE_DIR: z.string().optional(),
  AMQP_PREFIX: z.string().max(64, 'must have at most 64 characters').default(''),
})

/** All settings of the service, from which docs/settings.md is generated. */
export const reference = Config

/** The settings of an embedded service. It does not use Redis and RabbitMQ, so it has no settings for them. */
export type TokenServiceConfig = z.output<typeof EmbeddedConfig>
export type Config = z.output<typeof Config>

/**
 * Reads the settings of token-service.
 *
 * @throws {ConfigError} if a setting is invalid. The message names every invalid setting and contains no value.
 */
export const readConfig = (env: Environment = process.env): Config =>
  withReceiver(parseConfig(Config, env))

/**
 * Reads the settings of an embedded token-service.
 *
 * @throws {ConfigError} if a setting is invalid. The message names every invalid setting and contains no value.
 */
export const readEmbeddedConfig = (env: Environment): TokenServiceConfig =>
  withReceiver(parseConfig(EmbeddedConfig, env))

/** @throws {ConfigError} if the settings of the receiver of the audit log are missing. */
function withReceiver<C extends TokenServiceConfig>(config: C): C {
  const isMissing =
    config.AUDIT_WEBHOOK_URL === undefined || config.AUDIT_WEBHOOK_SECRET === undefined
  if (config.AUDIT_TO === 'webhook' && isMissing)
    throw new ConfigError(['AUDIT_TO: webhook needs AUDIT_WEBHOOK_URL and AUDIT_WEBHOOK_SECRET'])
  return config
}
