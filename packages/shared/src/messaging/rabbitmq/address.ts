/**
 * The forms of `AMQP_URL`, for the nodes of one cluster:
 *
 *     amqp://user:password@host[:port][,host[:port]…]/vhost
 *     amqp://user:password@host[:port]/vhost,amqp://user:password@host[:port]/vhost
 *
 * `amqps` has the same forms and uses TLS.
 */
import {
  AddressError,
  addressSetting,
  nameOf,
  parseServerList,
  rejectRepeated,
} from '../../process/server-list.ts'

export interface AmqpNode {
  /** `host:port`, for logs. */
  readonly name: string
  /** The complete URL of this node for amqplib. It contains the password. */
  readonly url: string
  readonly usesTls: boolean
  readonly hasUser: boolean
}

/** The setting `AMQP_URL`. */
export const amqpUrl = () => addressSetting(parseAmqpUrl, 'amqp://user:password@host:5672/vhost')

/**
 * Returns the nodes of an address in one of the forms of `AMQP_URL`.
 *
 * @throws {AddressError} if the address has another form; the message says what is wrong, without the address.
 */
export function parseAmqpUrl(text: string): readonly [AmqpNode, ...AmqpNode[]] {
  const lists = text.split(/,(?=amqps?:)/).map((url) => {
    const usesTls = url.startsWith('amqps:')
    const list = parseServerList(url, usesTls ? 5_671 : 5_672)
    if (!/^amqps?$/.test(list.scheme)) throw new AddressError('must begin with amqp or amqps')
    return list
  })
  if (new Set(lists.map(({ scheme }) => scheme)).size > 1)
    throw new AddressError('lists servers with TLS and without TLS')
  rejectRepeated(lists.flatMap(({ servers }) => servers))
  const nodes = lists.flatMap(({ scheme, userInfo, servers, rest }) =>
    servers.map((server): AmqpNode => {
      const name = nameOf(server)
      const url = `${scheme}://${userInfo === '' ? '' : `${userInfo}@`}${name}${rest}`
      if (!URL.canParse(url)) throw new AddressError('is not a URL')
      return { name, url, usesTls: scheme === 'amqps', hasUser: userInfo !== '' }
    }),
  )
  const [first, ...others] = nodes
  if (first === undefined) throw new AddressError('has no host')
  return [first, ...others]
}
