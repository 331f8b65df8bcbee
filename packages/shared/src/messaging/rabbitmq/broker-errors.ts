/** What the broker says of itself, and when it refuses something, in RabbitMQ's words (3.10 to 4.x). */
import type { ChannelModel } from 'amqplib'
import { reasonOf } from '../../observability/health.ts'

/** Something of the name is there with another setting than was asked for; the broker tells of the first one. */
export interface Inequivalence {
  readonly kind: 'queue' | 'exchange'
  readonly name: string
  /** `x-message-ttl`, `type`, `durable`, … */
  readonly setting: string
  /** As the broker prints it, `none` where there is none. */
  readonly wanted: string
  readonly found: string
}

const INEQUIVALENT =
  /inequivalent arg '(?<setting>[^']*)' for (?<kind>queue|exchange) '(?<name>.*)' in vhost '.*': received (?<wanted>.*?) but current is (?<found>.*?)"?$/s

/** The broker's version, as it told it in its greeting. */
export function versionOf({ connection }: ChannelModel): string {
  // Not in the types.
  const { serverProperties } = connection as unknown as {
    readonly serverProperties: { readonly version?: string }
  }
  return serverProperties.version ?? 'unknown'
}

/** What differs, when `error` is the broker's refusal of a declaration; else null. */
export function inequivalenceOf(error: unknown): Inequivalence | null {
  const { code, message = '' } = (error ?? {}) as { code?: unknown; message?: string }
  if (code !== 406) return null
  const {
    kind,
    name = '',
    setting = '',
    wanted = '',
    found = '',
  } = INEQUIVALENT.exec(message)?.groups ?? {}
  if (kind !== 'queue' && kind !== 'exchange') return null
  return { kind, name, setting, wanted: bare(wanted), found: bare(found) }
}

// "the value '5000' of type 'signedint'", "'fanout'", "none"
const bare = (text: string): string =>
  /^(?:the value )?'(?<value>.*?)'(?: of type '\w+')?$/s.exec(text)?.groups?.['value'] ?? text

/** The part of a broker's error that may be told to anyone; for one of AMQP its reply, such as `ACCESS-REFUSED`. */
export function brokerReason(error: unknown): string {
  const differs = inequivalenceOf(error)
  if (differs !== null) {
    const { kind, name, setting, wanted, found } = differs
    return `${kind} ${name} exists with another ${setting} (${found}) than it needs (${wanted})`
  }
  const reply = /\b[3-5]\d\d \((?<reply>[A-Z-]+)\)/.exec((error as Error | null)?.message ?? '')
  return reply?.groups?.['reply'] ?? reasonOf(error)
}
