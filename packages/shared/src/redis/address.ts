/**
 * The forms of `REDIS_URL`:
 *
 *     redis://[user[:password]@]host[:port][,host[:port]…][/db]
 *     redis+sentinel://[user[:password]@]host[:port][,host[:port]…]/name[/db][?sentinel_user=…&sentinel_password=…]
 *
 * `rediss` and `rediss+sentinel` have the same forms and use TLS. In the second form the hosts are Sentinels.
 */
import {
  AddressError,
  addressSetting,
  decoded,
  parametersOf,
  parseServerList,
  type ServerList,
} from '../process/server-list.ts'

interface Login {
  readonly username?: string
  readonly password?: string
}

interface Common extends Login {
  readonly usesTls: boolean
  readonly db: number
}

/** An address that lists Redis servers, one of which is the primary. */
interface ListedServers extends Common {
  readonly kind: 'servers'
  readonly servers: ServerList['servers']
}

/** An address that lists Sentinels, which know which server is the primary. */
interface ListedSentinels extends Common {
  readonly kind: 'sentinels'
  readonly sentinels: SentinelAddress
}

export type RedisAddress = ListedServers | ListedSentinels

export interface SentinelAddress extends Login {
  readonly servers: ServerList['servers']
  /** The name under which the Sentinels monitor the primary, such as `mymaster`. */
  readonly name: string
  readonly usesTls: boolean
}

const REDIS_PORT = 6_379
const SENTINEL_PORT = 26_379

/** The setting `REDIS_URL`. */
export const redisUrl = () => addressSetting(parseRedisUrl, 'redis://user:password@host:6379/0')

/**
 * Parses an address in one of the forms of `REDIS_URL`.
 *
 * @throws {AddressError} if the address has another form; the message says what is wrong, without the address.
 */
export function parseRedisUrl(text: string): RedisAddress {
  const isSentinel = /^rediss?\+sentinel:/.test(text)
  const { scheme, userInfo, servers, rest } = parseServerList(
    text,
    isSentinel ? SENTINEL_PORT : REDIS_PORT,
  )
  if (!/^rediss?(\+sentinel)?$/.test(scheme))
    throw new AddressError('must begin with redis, rediss, redis+sentinel or rediss+sentinel')
  const usesTls = scheme.startsWith('rediss')
  const [path = '', query = ''] = rest.split('?', 2)
  const names = path.split('/').slice(1).map(decoded)
  const name = isSentinel ? names.shift() : undefined
  if (name === '' || (isSentinel && name === undefined))
    throw new AddressError('lacks the name of the primary: redis+sentinel://host:26379/name')
  const [db = '', ...more] = names
  if (!/^\d{0,5}$/.test(db) || more.length > 0)
    throw new AddressError('has a path that is not the number of a database')
  const parameters = parametersOf(query)
  rejectUnknown(parameters, isSentinel)
  const [username, password] = userInfo.split(/:(.*)/s).map(decoded)
  const common = { ...loginOf(username, password), usesTls, db: Number(db) }
  if (name === undefined) return { ...common, kind: 'servers', servers }
  const login = loginOf(parameters.get('sentinel_user'), parameters.get('sentinel_password'))
  const sentinelTls = usesTls && parameters.get('sentinel_tls') !== 'off'
  return {
    ...common,
    kind: 'sentinels',
    sentinels: { ...login, servers, name, usesTls: sentinelTls },
  }
}

const loginOf = (username = '', password = ''): Login => ({
  ...(username !== '' && { username }),
  ...(password !== '' && { password }),
})

function rejectUnknown(parameters: ReadonlyMap<string, string>, isSentinel: boolean): void {
  const known = isSentinel ? ['sentinel_user', 'sentinel_password', 'sentinel_tls'] : []
  for (const name of parameters.keys())
    if (!known.includes(name)) throw new AddressError('has an unknown parameter after the ?')
  if (!['on', 'off', undefined].includes(parameters.get('sentinel_tls')))
    throw new AddressError('has a sentinel_tls that is not on or off')
}
