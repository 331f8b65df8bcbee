import { z } from 'zod'
import { labelMembers } from './text.ts'
import { CredentialName } from './realm.ts'

/** Describes why a refresh failed, whether the failure is final, and what the operator should do. Contains no token. */
export const Fault = z
  .object({
    Code: z.string().meta({ description: 'class of the fault, such as invalid_grant' }),
    Message: z.string().meta({
      description:
        "Couldn't refresh token for realm <credential_name>, <token endpoint response body>",
    }),
    At: z.iso.datetime().meta({ description: 'when the last refresh failed' }),
    Since: z.iso.datetime().optional().meta({
      description: 'when the first refresh since the last success failed with a fault',
    }),
    Attempts: z.int().nonnegative(),
    TraceId: z.string().optional().meta({ description: "the provider's trace id (intuit_tid)" }),
    Remedy: z.string().optional().meta({ description: 'what to do' }),
    Final: z.boolean().optional().meta({
      description:
        'false while the same refresh token will be retried; if absent, the class decides',
    }),
    Rejections: z
      .int()
      .positive()
      .optional()
      .meta({ description: 'how often the provider has rejected this refresh token' }),
    NextTryAt: z.iso
      .datetime()
      .optional()
      .meta({ description: 'when a rejected refresh token is retried' }),
  })
  .meta({ ref: 'CredentialFault' })
export type Fault = z.output<typeof Fault>

/**
 * The states of a credential. `active`: refreshes succeed. `expiring`: active, but the grant ends soon, and a refresh
 * cannot extend it. `failing`: refreshes fail and are retried. `must_reconnect`: only a new grant helps.
 */
export const credentialStates = ['active', 'expiring', 'failing', 'must_reconnect'] as const
export type CredentialState = (typeof credentialStates)[number]

/** A credential as token-service's API returns it: everything except the secrets. */
export const CredentialView = z
  .object({
    Name: CredentialName,
    Environment: z.string().meta({ description: 'the realm; empty if unknown' }),
    Expiry: z.iso.datetime().meta({ description: 'when the access token expires, UTC' }),
    Status: z.enum(['active', 'faulted']),
    State: z.enum(credentialStates),
    ...labelMembers,
    Version: z.int().positive(),
    RefreshedAt: z.iso.datetime(),
    RefreshDueAt: z.iso.datetime().optional().meta({
      description: 'when the next refresh is scheduled; absent if none is, because the grant ended',
    }),
    IdleExpiry: z.iso.datetime().optional().meta({
      description: 'when the grant ends unless it is refreshed before; absent if unknown',
    }),
    HardExpiry: z.iso
      .datetime()
      .optional()
      .meta({ description: 'when the grant ends, regardless of refreshes; absent if unknown' }),
    Attempts: z
      .int()
      .nonnegative()
      .meta({ description: 'failed refreshes since the last success' }),
    NextTryAt: z.iso
      .datetime()
      .optional()
      .meta({ description: 'before this time only a forced refresh is tried' }),
    Fault: Fault.optional(),
  })
  .meta({ ref: 'Credential' })
export type CredentialView = z.output<typeof CredentialView>

/** The response of `GET /credentials/summary`: the number of credentials in total, by state and by fault class. */
export const CredentialCounts = z
  .object({
    Total: z.int().nonnegative(),
    States: z.record(z.enum(credentialStates), z.int().nonnegative()),
    Classes: z.record(z.string(), z.int().nonnegative()).meta({
      description: 'by class of the fault; a class without credentials is absent',
    }),
  })
  .meta({ ref: 'CredentialCounts' })
export type CredentialCounts = z.output<typeof CredentialCounts>

/**
 * The response of `GET /credentials/{name}/token`: a valid access token. The response is never logged and must not be
 * cached.
 */
export const AccessTokenView = z
  .object({
    Name: CredentialName,
    Authenticator: z.string().min(1).meta({ description: 'the bearer access token' }),
    Expiry: z.iso.datetime(),
    Version: z.int().positive(),
  })
  .meta({ ref: 'AccessToken' })
export type AccessTokenView = z.output<typeof AccessTokenView>

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
