/** Reads the server properties and the errors of RabbitMQ (3.10 to 4.x). */
import type { ChannelModel } from 'amqplib'
import { reasonOf } from '../../observability/health.ts'
import { tlsFailure } from '../../tls/tls-failure.ts'

/**
 * Describes an existing queue or exchange whose argument differs from the declared argument. The broker names only the
 * first argument that differs.
 */
export interface Inequivalence {
  readonly kind: 'queue' | 'exchange'
  readonly name: string
  /** The name of the argument, such as `x-message-ttl`, `type` or `durable`. */
  readonly setting: string
  /** The declared value as the broker prints it; `none` if it is not set. */
  readonly wanted: string
  readonly found: string
}

const INEQUIVALENT =
  /^inequivalent arg '(?<setting>[^']*)' for (?<kind>queue|exchange) '(?<name>(?:[^']|'(?! in vhost '))*)' in vhost '[^']*': received (?<wanted>.*?) but current is (?<found>.*?)"?$/s

/**
 * Returns the broker's version from its server properties (`connection.start`); `unknown` if they contain no version.
 */
export function versionOf({ connection }: ChannelModel): string {
  // The types of amqplib do not contain the server properties.
  const { serverProperties } = connection as unknown as {
    readonly serverProperties: { readonly version?: string }
  }
  return serverProperties.version ?? 'unknown'
}

/**
 * Returns how the existing queue or exchange differs from the declaration that was rejected with `error` (406
 * PRECONDITION_FAILED). Returns `null` for any other error.
 */
export function inequivalenceOf(error: unknown): Inequivalence | null {
  const { code, message = '' } = (error ?? {}) as { code?: unknown; message?: string }
  if (code !== 406) return null
  const from = Math.max(0, message.indexOf('inequivalent arg '))
  const {
    kind,
    name = '',
    setting = '',
    wanted = '',
    found = '',
  } = INEQUIVALENT.exec(message.slice(from))?.groups ?? {}
  if (kind !== 'queue' && kind !== 'exchange') return null
  return { kind, name, setting, wanted: bare(wanted), found: bare(found) }
}

// Removes the text that the broker adds to a value, as in "the value '5000' of type 'signedint'", "'fanout'" and
// "none".
const bare = (text: string): string =>
  /^(?:the value )?'(?<value>.*?)'(?: of type '\w+')?$/s.exec(text)?.groups?.['value'] ?? text

/** Reasons for errors of amqplib that have a message but no code. The patterns match the message. */
const meanings: readonly (readonly [RegExp, string])[] = [
  [/^connect ETIMEDOUT$/, 'ETIMEDOUT'],
  [/^Socket closed abruptly during opening handshake$/, 'ended the handshake'],
  [/^Unexpected close$/, 'ended the connection'],
  [/^Heartbeat timeout$/, 'does not respond'],
  [
    /^SASL mechanism EXTERNAL is not provided/,
    'does not accept a client certificate as login (plugin rabbitmq_auth_mechanism_ssl)',
  ],
]

/**
 * Returns the part of a broker error that is safe to log. For an AMQP reply, this part is the name of the reply code,
 * such as `ACCESS-REFUSED`.
 */
export function brokerReason(error: unknown): string {
  const differs = inequivalenceOf(error)
  if (differs !== null) {
    const { kind, name, setting, wanted, found } = differs
    return `${kind} ${name} exists with another ${setting} (${found}) than it needs (${wanted})`
  }
  const failure = tlsFailure(error)
  if (failure !== null) return failure.reason
  const message = (error as Error | null)?.message ?? ''
  const reply = /\b[3-5]\d\d \((?<reply>[A-Z-]+)\)/.exec(message)?.groups?.['reply']
  return reply ?? meanings.find(([pattern]) => pattern.test(message))?.[1] ?? reasonOf(error)
}
