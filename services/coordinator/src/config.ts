import { keyFile } from '@integration-host/shared/access/access-keys'
import { readableFile } from '@integration-host/shared/files/list-file'
import { forwardProxySettings } from '@integration-host/shared/http/forward-proxy/forward-proxy'
import { productSettings } from '@integration-host/shared/http/page'
import { amqpUrl } from '@integration-host/shared/messaging/rabbitmq/address'
import {
  ConfigError,
  days,
  type Environment,
  httpUrl,
  integer,
  listenSettings,
  parseConfig,
  seconds,
  serviceKeys,
  keyRing,
} from '@integration-host/shared/process/config'
import { postgresUrl } from '@integration-host/postgres/address'
import { providerProfile } from '@integration-host/shared/provider-profile/profiles'
import { tlsSettings } from '@integration-host/shared/tls/tls-files'
import { z } from 'zod'
import { processSources } from './adapters/folder/process-sources.ts'
import { allowedHosts, webhookFaults } from './adapters/files/webhooks-file.ts'

/**
 * A check that the internet is reachable: an HTTP URL that must respond, or a TCP port that must accept a connection.
 */
export type Probe =
  | { readonly kind: 'http'; readonly url: string }
  /** The protocol of `url` only says which forward proxy opens the connection, if one is set. */
  | { readonly kind: 'tcp'; readonly url: string }

const HOST_AND_PORT = /^(?<host>[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]+\]):(?<port>\d{1,5})$/

function parseProbe(text: string): Probe | null {
  if (/^https?:\/\//.test(text)) return URL.canParse(text) ? { kind: 'http', url: text } : null
  const { host, port } = HOST_AND_PORT.exec(text)?.groups ?? {}
  if (host === undefined || Number(port) < 1 || Number(port) > 65_535) return null
  const url = `https://${host}:${port}`
  return URL.canParse(url) ? { kind: 'tcp', url } : null
}

const probes = () =>
  z.string().transform((list, context) => {
    const parsed = list.split(',').map((entry) => parseProbe(entry.trim()))
    if (parsed.includes(null)) {
      context.addIssue({
        code: 'custom',
        message: 'must be a comma list of http(s)://… or host:port',
      })
      return z.NEVER
    }
    return parsed.filter((probe) => probe !== null)
  })

const Embedded = z.object({
  ...listenSettings(7219),
  SERVICE_API_KEY: serviceKeys(),
  SERVICE_KEYS_FILE: keyFile().optional(),
  PROCESSES: processSources().optional(),
  WEBHOOKS_FILE: readableFile().optional(),
  WEBHOOKS_ALLOWED_HOSTS: allowedHosts().optional(),
  LOCAL_PULL_SECONDS: seconds(0.05, 3_600).default(15),
  REMOTE_PULL_SECONDS: seconds(0.05, 86_400).default(60),
  INTERNET_PROBES: probes().optional(),
  DISCOVERY_URL: z.url({ protocol: /^https?$/, error: 'must be an http(s) URL' }).optional(),
  PROVIDER_PROFILE: providerProfile(),
  DEMO_API_URL: httpUrl().default('http://127.0.0.1:7216'),
  GATEWAY_URL: httpUrl().default('http://127.0.0.1:7218'),
  TOKEN_SERVICE_URL: httpUrl().default('http://127.0.0.1:7217'),
  DATA_DIR: z.string().default('./data'),
  PREFETCH: integer(1, 2_000).default(64),
  RETENTION_COMPLETED_DAYS: days().optional(),
  RETENTION_FAILED_DAYS: days().optional(),
  DEDUPE_DAYS: days().default(365),
  ENTRY_DAYS: days().default(400),
  PAYLOAD_KEYS: keyRing().optional(),
  /** The address at which `/decisions/` is published. By default, that of this service. */
  DECISIONS_URL: httpUrl().optional(),
  ...productSettings(),
  ...forwardProxySettings(),
})
/** The settings of `startCoordinator`, which do not depend on the backends. */
export type EmbeddedConfig = z.output<typeof Embedded>

const backends = {
  AMQP_URL: amqpUrl(),
  ...tlsSettings('AMQP'),
  AMQP_PREFIX: z
    .string()
    .regex(/^[A-Za-z0-9._-]{0,64}$/, 'must be at most 64 of A-Z a-z 0-9 . _ -')
    .default(''),
}
const OnPostgres = Embedded.extend({
  ...backends,
  TRANSACTION_SOURCE: z.literal('postgres', 'must be postgres or memory').default('postgres'),
  DATABASE_URL: postgresUrl(),
  DATABASE_LISTEN_URL: postgresUrl().optional(),
  ...tlsSettings('DATABASE'),
})
/** The schema of all settings of the service, from which docs/settings.md is generated. */
export const reference = OnPostgres.extend({
  TRANSACTION_SOURCE: z.enum(['postgres', 'memory']).default('postgres'),
})
const OnMemory = Embedded.extend({ ...backends, TRANSACTION_SOURCE: z.literal('memory') })
export type Config = z.output<typeof OnPostgres> | z.output<typeof OnMemory>

/**
 * The settings of a coordinator that runs as its own OS process; `DATABASE_URL` is required unless `TRANSACTION_SOURCE`
 * is `memory`.
 */
export const readConfig = (env: Environment): Config =>
  withValidWebhooks(
    env['TRANSACTION_SOURCE'] === 'memory'
      ? parseConfig(OnMemory, env)
      : parseConfig(OnPostgres, env),
  )

/** The settings of the embedded host: the settings of a coordinator process, without the settings of the backends. */
export const readEmbeddedConfig = (env: Environment): EmbeddedConfig =>
  withValidWebhooks(parseConfig(Embedded, env))

/**
 * Checks the webhooks file with the settings, and returns the settings.
 *
 * @throws {ConfigError} if the file is not valid.
 */
function withValidWebhooks<Settings extends EmbeddedConfig>(config: Settings): Settings {
  const faults = webhookFaults(config)
  if (faults.length > 0) throw new ConfigError(faults)
  return config
}

/**
 * Returns the configured probes. The default is one probe, which checks the host of the discovery document. Without a
 * discovery document there is no probe, so the internet always counts as reachable.
 */
export function probesOf(config: EmbeddedConfig): readonly Probe[] {
  if (config.INTERNET_PROBES !== undefined) return config.INTERNET_PROBES
  if (config.DISCOVERY_URL === undefined) return []
  return [{ kind: 'tcp', url: new URL(config.DISCOVERY_URL).origin }]
}
