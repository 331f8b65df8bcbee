import { readFileSync } from 'node:fs'
import {
  ConfigError,
  type Environment,
  httpUrl,
  integer,
  listenSettings,
  readSettings,
  secret,
  serviceKeys,
} from '@integration-host/shared/process/config'
import type { Secret } from '@integration-host/shared/secrets/secret'
import { redisUrl } from '@integration-host/shared/redis/address'
import { forwardProxySettings } from '@integration-host/shared/http/forward-proxy/forward-proxy'
import { trustedProxies } from '@integration-host/shared/http/peer-network'
import { tlsSettings } from '@integration-host/shared/tls/tls-files'
import { isLoopback } from '@integration-host/shared/http/origin-guard'
import { z } from 'zod'
import { commandLines, signInWays } from './contracts/session.ts'
import { isListEntry } from './session/authorize.ts'
import type { ReadFile } from '@integration-host/shared/files/list-file'
import { parseUsers } from './session/password.ts'

/** A list of e-mail addresses, `group:name` and `oidc:subject`, separated by commas; empty by default. */
const people = () =>
  z
    .string()
    .default('')
    .transform((list) => list.split(',').map((entry) => entry.trim()))
    .transform((list) => list.filter((entry) => entry !== ''))
    .refine(
      (list) => list.every(isListEntry),
      'must be a comma list of ASCII e-mail addresses, group:name and oidc:subject',
    )

const Settings = z.object({
  ...listenSettings(7221),
  /** The address at which browsers reach the console. Only a loopback address may be `http:`. */
  CONSOLE_URL: httpUrl().optional(),
  /** The key that the console presents to the services (docs/console.md). */
  OPERATOR_API_KEY: secret(32).optional(),
  /**
   * The keys with which `POST /sign-in-links` can be called. Without this setting, no key is accepted. Without
   * OPERATOR_API_KEY the console presents the first of these keys to the services.
   */
  SERVICE_API_KEY: serviceKeys().optional(),
  TOKEN_SERVICE_URL: httpUrl().default('http://127.0.0.1:7217'),
  GATEWAY_URL: httpUrl().default('http://127.0.0.1:7218'),
  COORDINATOR_URL: httpUrl().default('http://127.0.0.1:7219'),
  DEMO_API_URL: httpUrl().optional(),
  SANDBOX_URL: httpUrl().optional(),
  WEBHOOK_RECEIVER_URL: httpUrl().optional(),
  /**
   * The address of Prometheus. The console shows the firing alerts of Prometheus, and charts of more than the last
   * hour. The console sends only a fixed list of queries.
   */
  PROMETHEUS_URL: httpUrl().optional(),
  /** The address at which browsers reach Grafana, for a link. */
  GRAFANA_URL: httpUrl().optional(),
  /** How persons sign in. There is no default, so that no console is open by accident. */
  SIGN_IN: z
    .string()
    .transform((list) => list.split(',').map((way) => way.trim()))
    .pipe(z.array(z.enum(signInWays, 'must be a comma list of link, password and oidc')).min(1)),
  /** The file with the users of `SIGN_IN=password`. */
  USERS_FILE: z.string().optional(),
  /** The proxies whose header `X-Forwarded-For` names the client. Failed sign-ins are counted for its network. */
  TRUSTED_PROXIES: trustedProxies(),
  /** The issuer of the OpenID provider of `SIGN_IN=oidc`, exactly as in its discovery document. */
  OIDC_ISSUER: z.url({ protocol: /^https?$/, error: 'must be an http(s) URL' }).optional(),
  OIDC_CLIENT_ID: z.string().optional(),
  OIDC_CLIENT_SECRET: secret().optional(),
  /** The forward proxy for requests to `OIDC_ISSUER`. */
  ...forwardProxySettings(),
  OIDC_SCOPE: z.string().default('openid email'),
  /** Who may act: verified e-mail addresses of persons, `oidc:subject`, or groups in the form `group:name`. */
  OIDC_OPERATORS: people(),
  /** Who may only read: verified e-mail addresses of persons, `oidc:subject`, or groups in the form `group:name`. */
  OIDC_VIEWERS: people(),
  /** The claim of the id token with the groups of the person. */
  OIDC_GROUPS_CLAIM: z.string().default('groups'),
  /** Whether viewers see the business data of runs. */
  VIEWER_SEES_DATA: z.enum(['on', 'off']).default('off'),
  /** The address of a trace in the tracing system. `{traceId}` is replaced with the id of the trace. */
  TRACES_URL: z
    .url({ protocol: /^https?$/, error: 'must be an http(s) URL' })
    .refine((url) => url.includes('{traceId}'), 'must contain {traceId}')
    .optional(),
  /**
   * How the command line is run in this installation, for the commands that the pages show: `npx --no -- integration-host …`, or
   * `docker compose run --rm cli …`.
   */
  COMMAND_LINE: z.enum(commandLines).default('npx'),
  SESSION_HOURS: integer(1, 168).default(12),
  SESSION_IDLE_MINUTES: integer(1, 1_440).default(60),
  /**
   * The address of Redis. If it is set, sessions survive restarts, and several replicas share them. Otherwise each
   * process has its sessions in memory.
   */
  REDIS_URL: redisUrl().optional(),
  ...tlsSettings('REDIS'),
  REDIS_KEY_PREFIX: z.string().max(64).default(''),
})
/** The schema of all settings, from which `npm run docs` generates docs/settings.md. */
export const reference = Settings

export type Config = Omit<z.output<typeof Settings>, 'CONSOLE_URL'> & {
  /**
   * The key that the console presents to the services: OPERATOR_API_KEY, or else the first of the service
   * keys.
   */
  readonly key: Secret
  /** The address at which browsers reach the console; `null` if the listening address is used. */
  readonly CONSOLE_URL: string | null
  /** The users file; `null` unless `SIGN_IN` contains `password`. It is read again after each change. */
  readonly usersFile: ReadFile | null
  /** The settings of the OpenID provider; `null` unless `SIGN_IN` contains `oidc`. */
  readonly openId: OpenIdSettings | null
}

export interface OpenIdSettings {
  readonly issuer: string
  readonly clientId: string
  readonly clientSecret: Secret
}

/**
 * Reads the settings from the environment, and the users file.
 *
 * @throws {ConfigError} names every invalid or missing setting.
 */
export function readConfig(env: Environment = process.env): Config {
  const { settings, valid, problems } = readSettings(Settings, env)
  const isReported = (name: string): boolean =>
    problems.some((line) => new RegExp(`^${name}(?:_FILE)?[.:]`).test(line))
  const report: Report = (name, problem) => {
    if (!isReported(name)) problems.push(`${name}: ${problem}`)
  }
  if (valid.CONSOLE_URL !== undefined) {
    const url = new URL(valid.CONSOLE_URL)
    const isLocal = isLoopback(url.hostname) || url.hostname === 'console.localhost'
    if (url.protocol === 'http:' && !isLocal)
      report('CONSOLE_URL', 'must be https, because it is not a loopback address')
    if (url.pathname !== '/') report('CONSOLE_URL', 'must have no path')
  }
  const key = valid.OPERATOR_API_KEY ?? valid.SERVICE_API_KEY?.[0]
  if (key === undefined && !isReported('SERVICE_API_KEY'))
    report('OPERATOR_API_KEY', 'is needed without SERVICE_API_KEY')
  const usersFile = valid.SIGN_IN?.includes('password') === true ? readUsers(valid, report) : null
  const openId = valid.SIGN_IN?.includes('oidc') === true ? readOpenId(valid, report) : null
  if (settings === null || key === undefined || problems.length > 0) throw new ConfigError(problems)
  return { ...settings, key, CONSOLE_URL: settings.CONSOLE_URL ?? null, usersFile, openId }
}

type ValidSettings = Partial<z.output<typeof Settings>>
/** Reports a problem of a setting, unless another problem of the same setting is reported. */
type Report = (name: keyof ValidSettings, problem: string) => void

function readUsers({ USERS_FILE }: ValidSettings, report: Report): ReadFile | null {
  try {
    if (USERS_FILE === undefined) throw new Error('is needed for SIGN_IN=password')
    const text = readFileSync(USERS_FILE, 'utf8')
    if (parseUsers(text).size === 0) throw new Error('the file names no user')
    return { path: USERS_FILE, text }
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    report('USERS_FILE', code === undefined ? message : `the file cannot be read (${code})`)
    return null
  }
}

function readOpenId(valid: ValidSettings, report: Report): OpenIdSettings | null {
  const { OIDC_ISSUER: issuer, OIDC_CLIENT_ID: clientId, OIDC_CLIENT_SECRET: clientSecret } = valid
  for (const name of ['OIDC_ISSUER', 'OIDC_CLIENT_ID', 'OIDC_CLIENT_SECRET'] as const)
    if (valid[name] === undefined) report(name, 'is needed for SIGN_IN=oidc')
  if (valid.OIDC_OPERATORS?.length === 0 && valid.OIDC_VIEWERS?.length === 0)
    report('OIDC_OPERATORS', 'is needed without OIDC_VIEWERS')
  if (valid.OIDC_SCOPE?.split(' ').includes('openid') === false)
    report('OIDC_SCOPE', 'must contain openid')
  if (issuer === undefined) return null
  const { protocol, hostname } = new URL(issuer)
  if (protocol === 'http:' && !isLoopback(hostname))
    report('OIDC_ISSUER', 'must be https, because it is not a loopback address')
  return clientId === undefined || clientSecret === undefined
    ? null
    : { issuer, clientId, clientSecret }
}
