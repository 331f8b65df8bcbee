import type { PostgresAddress } from './address.ts'
import type { ServerSockets, Unresponsive } from './server-sockets.ts'

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
