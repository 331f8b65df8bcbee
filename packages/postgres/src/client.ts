import { backoffMs } from '@integration-host/shared/process/backoff'
import postgres from 'postgres'
import type { PostgresAddress } from './address.ts'
import type { ServerSockets, Unresponsive } from './server-sockets.ts'

/**
 * The time format that `isoTime` can parse. It is set on each connection, whatever the settings of the database are.
 */
const TIMES = { TimeZone: 'UTC', DateStyle: 'ISO' }
const TIMESTAMPTZ = 1184

interface ClientOptions {
  readonly max: number
  /** What happens to a connection on which no response has arrived for `answer_timeout` seconds; `keep` by default. */
  readonly unresponsive?: Unresponsive
  readonly prepare?: boolean
  readonly idle_timeout?: number
  readonly max_lifetime?: number | null
  readonly answer_timeout?: number
  readonly onnotify?: (channel: string) => void
  readonly onclose?: () => void
}

/** Creates a client of the driver. `sockets` opens its connections. */
export function createClient(
  { address, sockets }: { readonly address: PostgresAddress; readonly sockets: ServerSockets },
  name: string,
  own: ClientOptions,
): postgres.Sql {
  const options = driverOptions(address, sockets, {
    ...own,
    startup: { application_name: name, ...TIMES },
    // The driver's own back-off is replaced, because it grows to 20 s, and queries would wait that long.
    backoff: (attempt: number) =>
      backoffMs(attempt + 1, { baseMs: 50, capMs: 1_000, random: 1 }) / 1_000, // in seconds
    // With `fetch_types: true`, the driver would query the types on each new connection. It does not handle a failure
    // of that query, so such a failure would crash the coordinator.
    fetch_types: false,
    types: {
      isoTime: {
        to: TIMESTAMPTZ,
        from: [TIMESTAMPTZ],
        serialize: (value: string) => value,
        parse: rememberingLast(isoTime),
      },
    },
  })
  return postgres(options)
}

/**
 * Returns a function that returns the previous string while its argument is unchanged. The rows of a batch have the same
 * times, so they share one string instead of each keeping a copy.
 */
function rememberingLast(parse: (value: string) => string): (value: string) => string {
  let last = ''
  let parsed = ''
  return (value) => {
    if (value !== last) {
      parsed = parse(value)
      last = value
    }
    return parsed
  }
}

/**
 * Returns the options with which the driver uses `sockets`. The result is typed as `object`, because the driver's types
 * do not contain all of the options.
 */
export function driverOptions(
  address: PostgresAddress,
  sockets: ServerSockets,
  {
    unresponsive = 'keep',
    startup = {},
    ...own
  }: {
    readonly unresponsive?: Unresponsive
    /** Parameters of the startup message. Parameters in the URL take precedence. */
    readonly startup?: Readonly<Record<string, string>>
    readonly [option: string]: unknown
  },
): object {
  const [{ host, port }] = address.servers
  return {
    ...own,
    // The socket selects the server. The driver uses this host and port only in its error messages.
    host: [host],
    port: [port],
    user: address.user,
    pass: address.password,
    database: address.database,
    socket: () => sockets.create(unresponsive),
    // The driver's connect timeout is disabled, because the socket has a timeout for each server.
    connect_timeout: 0,
    connection: { ...startup, ...address.startup },
    onnotice: () => {},
  }
}

/**
 * Returns a time in ISO 8601 with milliseconds, in the format of `toISOString`. The input is a time as PostgreSQL
 * prints it in UTC: `2026-11-20 09:30:00.25+00`, or in JSON `2026-11-20T09:30:00.25+00:00`. The input is parsed by
 * character index, because this function runs several times per transaction.
 */
export function isoTime(value: string): string {
  let digits = 0
  if (value[19] === '.') while (digits < 3 && isDigit(value.charCodeAt(20 + digits))) digits += 1
  const fraction = value.slice(20, 20 + digits).padEnd(3, '0')
  return `${value.slice(0, 10)}T${value.slice(11, 19)}.${fraction}Z`
}

const isDigit = (code: number): boolean => code >= 48 && code <= 57
