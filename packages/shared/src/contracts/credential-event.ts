import { z } from 'zod'
import { Fault } from './credential.ts'
import { labelMembers } from './labels.ts'
import { CredentialName } from './realm.ts'

/** Topic exchange of credential events; the routing key is `credential.<kind>`. */
export const CREDENTIALS_EXCHANGE = 'integration.credentials'

export const credentialEventKinds = [
  'stored',
  'refreshed',
  'faulted',
  'removed',
  /**
   * The grant ends in 90, 30 or 7 days. A refresh cannot extend this grant, so the company has to be authorized again.
   */
  'expiring',
] as const
export type CredentialEventKind = (typeof credentialEventKinds)[number]

/** The body of a credential event. A message never contains a token. */
export const CredentialEvent = z.object({
  Name: CredentialName,
  Environment: z.string(),
  ...labelMembers,
  Expiry: z.iso.datetime(),
  Version: z.int().positive(),
  At: z.iso.datetime(),
  HardExpiry: z.iso
    .datetime()
    .optional()
    .meta({ description: 'when the grant ends, regardless of refreshes; absent if unknown' }),
  Fault: Fault.optional(),
  revoked: z
    .boolean()
    .optional()
    .meta({ description: 'removed only: the provider confirmed the revocation' }),
  erase: z
    .boolean()
    .optional()
    .meta({ description: 'removed only: the data of the runs of the company is to be erased' }),
})
export type CredentialEvent = z.output<typeof CredentialEvent>

/** Returns the routing key of an event kind, such as `credential.stored`. */
export const credentialRoutingKey = (kind: CredentialEventKind): string => `credential.${kind}`

/** Returns the event kind that a routing key names; `null` if the routing key names no credential event. */
export function credentialEventKind(routingKey: string): CredentialEventKind | null {
  return credentialEventKinds.find((kind) => credentialRoutingKey(kind) === routingKey) ?? null
}

/**
 * Returns the message id `<Name>/<Version>/<kind>` of an event. A re-published event keeps its message id, so that
 * consumers can discard the duplicate.
 *
 * A credential version has at most three `faulted` events, and each of these events has a different id. The id
 * ends in `/disconnected` if the company has disconnected the application, and in `/final` if the fault has become
 * final.
 */
export function credentialMessageId(event: CredentialEvent, kind: CredentialEventKind): string {
  const id = `${event.Name}/${event.Version}/${kind}`
  if (kind !== 'faulted') return id
  const { Code, Final = false, Rejections = 0 } = event.Fault ?? {}
  if (Final && Rejections > 1) return `${id}/final`
  return Code === 'disconnected' ? `${id}/disconnected` : id
}
