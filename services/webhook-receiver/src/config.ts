import { amqpUrl } from '@integration-host/shared/messaging/rabbitmq/address'
import {
  type Environment,
  listenSettings,
  parseConfig,
  verifierTokens,
} from '@integration-host/shared/process/config'
import { tlsSettings } from '@integration-host/shared/tls/tls-files'
import { z } from 'zod'

const EmbeddedSettings = z.object({
  ...listenSettings(7222),
  WEBHOOK_VERIFIER_TOKENS: verifierTokens(),
})

const Settings = EmbeddedSettings.extend({
  AMQP_URL: amqpUrl(),
  ...tlsSettings('AMQP'),
  AMQP_PREFIX: z.string().max(64, 'must have at most 64 characters').default(''),
})

/** The settings of an embedded receiver. It does not use RabbitMQ, so the settings of RabbitMQ are left out. */
export type ReceiverConfig = z.output<typeof EmbeddedSettings>
export type Config = z.output<typeof Settings>
/** The schema of all settings, from which `npm run docs` generates docs/settings.md. */
export const reference = Settings

/** Reads the settings of the receiver. @throws {ConfigError} names every invalid or missing setting. */
export const readConfig = (env: Environment = process.env): Config => parseConfig(Settings, env)

/** Reads the settings of an embedded receiver. @throws {ConfigError} names every invalid or missing setting. */
export const readEmbeddedConfig = (env: Environment): ReceiverConfig =>
  parseConfig(EmbeddedSettings, env)
