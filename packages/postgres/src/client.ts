import { backoffMs } from '@integration-host/shared/process/clock'
import postgres from 'postgres'
import type { PostgresAddress } from './address.ts'
import { driverOptions } from './driver-options.ts'
import { isoTime } from './iso-time.ts'
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
