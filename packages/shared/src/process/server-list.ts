/** URLs whose authority lists several servers: `scheme://user:password@a:1,b:2,[::1]:3/path?query`. */
import { isIPv6 } from 'node:net'
import { z } from 'zod'
import { Secret } from '../secrets/secret.ts'

export interface Server {
  /** A host name or an IP address; an IPv6 address has no brackets here. */
  readonly host: string
  readonly port: number
}

/** The parts of a URL with one or more servers. The parts of type `string` keep the percent-encoding of the URL. */
export interface ServerList {
  readonly scheme: string
  /** The user information of the URL: `user`, `user:password`, `:password`, or empty. */
  readonly userInfo: string
  readonly servers: readonly [Server, ...Server[]]
  /** The path and the query; may be empty. */
  readonly rest: string
}

/**
 * The error for an address that cannot be used. The message contains no part of the address, which may contain a
 * password.
 */
export class AddressError extends Error {
  override readonly name = 'AddressError'
}

const URL_WITH_LIST =
  /^(?<scheme>[a-z][a-z+]*):\/\/(?:(?<userInfo>[^/?#]*)@)?(?<hosts>[^/?#@]*)(?<rest>[/?][^#]*)?$/
const HOST_AND_PORT = /^(?:\[(?<ipv6>[^\]]*)\]|(?<name>[A-Za-z0-9._-]+))(?::(?<port>[0-9]{1,5}))?$/

/**
 * Parses a URL with one or more servers.
 *
 * @throws {AddressError} if the text has another form, an empty, invalid or repeated host, or a port out of range.
 */
export function parseServerList(text: string, defaultPort: number): ServerList {
  const { scheme, userInfo = '', hosts, rest = '' } = URL_WITH_LIST.exec(text)?.groups ?? {}
  if (scheme === undefined || hosts === undefined) throw new AddressError('is not a URL')
  const [first, ...others] = hosts.split(',').map((host) => parseServer(host, defaultPort))
  // The type does not say that `split` returns at least one element.
  if (first === undefined) throw new AddressError('has no host')
  const servers = [first, ...others] as const
  rejectRepeated(servers)
  return { scheme, userInfo, servers, rest }
}

function parseServer(text: string, defaultPort: number): Server {
  if (text === '' || text.startsWith(':')) throw new AddressError('has an empty host')
  const { ipv6, name, port = String(defaultPort) } = HOST_AND_PORT.exec(text)?.groups ?? {}
  const host = ipv6 ?? name
  if (host === undefined || (ipv6 !== undefined && !isIPv6(ipv6)))
    throw new AddressError('has a host that is not a name, an IPv4 address or [an IPv6 address]')
  if (Number(port) < 1 || Number(port) > 65_535)
    throw new AddressError('has a port that is not 1 to 65535')
  return { host, port: Number(port) }
}

/** Rejects a list that names a server twice. @throws {AddressError} if two of the servers are the same. */
export function rejectRepeated(servers: readonly Server[]): void {
  if (new Set(servers.map((server) => nameOf(server).toLowerCase())).size < servers.length)
    throw new AddressError('names a server twice')
}

/** Returns `host:port`, with brackets around an IPv6 address. */
export const nameOf = ({ host, port }: Server): string =>
  `${host.includes(':') ? `[${host}]` : host}:${port}`

/**
 * Decodes the percent-encoding of a part of a URL.
 *
 * @throws {AddressError} if the percent-encoding is malformed.
 */
export function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw new AddressError('has a malformed percent-encoding')
  }
}

/** Returns the decoded parameters of a query. `URLSearchParams` is not used, because it decodes `+` as a space. */
export const parametersOf = (query: string): Map<string, string> =>
  new Map(
    query
      .split('&')
      .filter((part) => part !== '')
      .map((part) => {
        const [name = '', value = ''] = part.split(/=(.*)/s).map(decoded)
        return [name, value]
      }),
  )

/** A setting that holds an address, checked by `parse`, which throws {@link AddressError}. */
export const addressSetting = (parse: (text: string) => unknown, example: string) =>
  z
    .string()
    .meta({ format: 'uri' })
    .transform((value, context) => {
      try {
        parse(value)
        return new Secret(value)
      } catch (error) {
        const why = error instanceof AddressError ? error.message : 'is not usable'
        context.addIssue({ code: 'custom', message: `${why}; must be a URL like ${example}` })
        return z.NEVER
      }
    })
