/**
 * Parses `DATABASE_URL`, which has the form of libpq's connection URIs (PostgreSQL manual, section 34.1.1.2):
 *
 *     postgresql://[user[:password]@]host[:port][,host[:port]…]/database[?parameter=value&…]
 */
import type { z } from 'zod'
import {
  AddressError,
  addressSetting,
  decoded,
  parametersOf,
  parseServerList,
  type Server,
} from '@integration-host/shared/process/server-list'
import type { Secret } from '@integration-host/shared/secrets/secret'
import { tlsProblems } from '@integration-host/shared/tls/tls-files'

const sslModes = ['disable', 'allow', 'prefer', 'require', 'verify-ca', 'verify-full'] as const
/** How a connection is encrypted and what is verified (PostgreSQL manual, section 34.19.1). */
export type SslMode = (typeof sslModes)[number]

export interface PostgresAddress {
  readonly servers: readonly [Server, ...Server[]]
  /** The user name; empty for the driver's default. */
  readonly user: string
  readonly password: string
  /** The name of the database; empty if the database is named like the user. */
  readonly database: string
  /** The parameter `sslmode`; `null` if the URL does not have it. */
  readonly sslMode: SslMode | null
  /**
   * The paths in `sslrootcert`, `sslcert` and `sslkey`, under the names of the settings that these parameters override.
   */
  readonly files: TlsPaths
  /** Whether Node's own root certificates are used (`sslrootcert=system`). */
  readonly usesSystemRoots: boolean
  /** Whether a server that rejects writes is skipped. */
  readonly needsWrites: boolean
  /** How long a server may take until it accepts statements. After this time, the next server is tried. */
  readonly connectTimeoutMs: number
  /** The parameters of the startup message, with which a PostgreSQL session begins. */
  readonly startup: Readonly<Record<string, string>>
  /** PostgreSQL settings for each session. */
  readonly session: Readonly<Record<string, string>>
}

export interface TlsPaths {
  readonly DATABASE_CA_FILE?: string | undefined
  readonly DATABASE_CERT_FILE?: string | undefined
  readonly DATABASE_KEY_FILE?: string | undefined
}

const PORT = 5_432
const CONNECT_TIMEOUT_S = '5'
const FILES = {
  sslrootcert: 'DATABASE_CA_FILE',
  sslcert: 'DATABASE_CERT_FILE',
  sslkey: 'DATABASE_KEY_FILE',
} as const

/**
 * The libpq parameters that are not supported and therefore rejected. If the parameter for channel binding were
 * ignored, for example, the connection would be less secure than required.
 */
const UNSUPPORTED: ReadonlySet<string> = new Set(
  `authtype channel_binding client_encoding dbname fallback_application_name gssdelegation gssencmode gsslib host
  hostaddr keepalives keepalives_count keepalives_idle keepalives_interval krbsrvname load_balance_hosts
  max_protocol_version min_protocol_version oauth_client_id oauth_client_secret oauth_issuer oauth_scope passfile
  password port replication require_auth requirepeer requiressl scram_client_key scram_server_key service servicefile
  ssl_max_protocol_version ssl_min_protocol_version sslcertmode sslcompression sslcrl sslcrldir sslkeylogfile
  sslnegotiation sslpassword sslsni tcp_user_timeout tty user`.split(/\s+/),
)

/** The settings `DATABASE_URL` and `DATABASE_LISTEN_URL`. Files that the URL names must be usable. */
export const postgresUrl = (): z.ZodType<Secret, string> =>
  addressSetting((text) => {
    const [problem] = fileProblems(parsePostgresUrl(text).files)
    if (problem !== undefined) throw new AddressError(problem)
  }, 'postgresql://user:password@host:5432/database')

function fileProblems(files: TlsPaths): string[] {
  const lines = tlsProblems(files, { ...files })
  return lines.map((line) =>
    Object.entries(FILES).reduce((text, [name, setting]) => text.replaceAll(setting, name), line),
  )
}

/** Parses `DATABASE_URL`. @throws {AddressError} if the URL has another form or an unsupported parameter. */
export function parsePostgresUrl(text: string): PostgresAddress {
  const { scheme, userInfo, servers, rest } = parseServerList(text, PORT)
  if (!/^postgres(ql)?$/.test(scheme)) throw new AddressError('must begin with postgresql')
  const [path = '', query = ''] = rest.split(/\?(.*)/s, 2)
  const [user = '', password = ''] = userInfo.split(/:(.*)/s).map(decoded)
  const given = parametersOf(query)
  const take = (name: string): string | undefined => {
    const value = given.get(name)
    given.delete(name)
    return value
  }
  const sslMode = sslModeOf(take('sslmode'), take('ssl'))
  const root = take('sslrootcert')
  const usesSystemRoots = root === 'system'
  if (usesSystemRoots && (sslMode ?? 'verify-full') !== 'verify-full')
    throw new AddressError('has an sslmode that is too weak for sslrootcert=system: verify-full')
  const files = {
    DATABASE_CA_FILE: usesSystemRoots ? undefined : root,
    DATABASE_CERT_FILE: take('sslcert'),
    DATABASE_KEY_FILE: take('sslkey'),
  }
  const needsWrites = needsWritesOf(take('target_session_attrs'))
  const timeout = take('connect_timeout') ?? CONNECT_TIMEOUT_S
  if (!/^\d{1,2}$/.test(timeout) || Number(timeout) < 2 || Number(timeout) > 60)
    throw new AddressError('has a connect_timeout that is not 2 to 60')
  const startup = pick(['application_name', 'options'], take)
  for (const name of given.keys()) rejectUnknown(name)
  return {
    servers,
    user,
    password,
    database: decoded(path.slice(1)),
    sslMode,
    files,
    usesSystemRoots,
    needsWrites,
    connectTimeoutMs: Number(timeout) * 1_000,
    startup,
    session: Object.fromEntries(given),
  }
}

const pick = (
  names: readonly string[],
  take: (name: string) => string | undefined,
): Record<string, string> =>
  Object.fromEntries(
    names.flatMap((name) => {
      const value = take(name)
      return value === undefined ? [] : [[name, value]]
    }),
  )

function sslModeOf(mode: string | undefined, ssl: string | undefined): SslMode | null {
  // libpq reads `ssl=true`, the form of JDBC, as `sslmode=require`.
  const text = mode ?? (ssl === 'true' ? 'require' : ssl)
  if (text === undefined) return null
  const known = sslModes.find((each) => each === text)
  if (known === undefined)
    throw new AddressError(`has an sslmode that is not ${sslModes.join(', ')}`)
  return known
}

function needsWritesOf(attributes = 'read-write'): boolean {
  if (['read-write', 'primary'].includes(attributes)) return true
  if (attributes === 'any') return false
  throw new AddressError('has a target_session_attrs that is not read-write, primary or any')
}

function rejectUnknown(name: string): void {
  if (UNSUPPORTED.has(name))
    throw new AddressError(`has the parameter ${name}, which is not supported`)
  // A parameter with any other name is a PostgreSQL setting, such as search_path. The server rejects settings that it
  // does not know.
  if (!/^[a-z_][a-z0-9_.]{0,62}$/i.test(name))
    throw new AddressError('has a parameter that is not the name of a setting')
}
