/**
 * The outbox entry that a write stores together with the change of the credential. It contains entries for the audit
 * log and events for other services.
 */
import { z } from 'zod'
import { AuditFact } from '@integration-host/shared/contracts/audit'
import {
  CredentialEvent,
  type CredentialEventKind,
  credentialEventKinds,
} from '@integration-host/shared/contracts/credential'
import { labelMembersOf } from '@integration-host/shared/contracts/text'
import type { CredentialSummary } from './credential.ts'
import type { Labels } from './labels.ts'

/** The part of an audit entry that only the caller of the store knows. */
export interface AuditContext {
  /** The time of the change, in epoch milliseconds. */
  readonly at: number
  /** The caller as the audit log names it: `routine` (the refresh schedule), `browser` or `key <fingerprint>`. */
  readonly who: string
  readonly what: AuditFact['What']
  /** The outcome for the audit log; `ok` if absent. */
  readonly outcome?: string
  readonly traceId?: string | null
  /** The reason that the caller has given, or what was odd about the response of the provider (`reasonWith`). */
  readonly reason?: string | undefined
  /** Whether the removal of a credential also makes the coordinator erase the data of the company's runs. */
  readonly erase?: boolean
}

/**
 * Returns the reason of an audit entry: the reason of the caller, followed by what was odd about the provider's
 * response. `undefined` if there is neither.
 */
export const reasonWith = (
  reason: string | undefined,
  oddities: readonly string[],
): string | undefined =>
  [reason, oddities.length > 0 ? `odd response of the provider: ${oddities.join('; ')}` : undefined]
    .filter((part) => part !== undefined)
    .join('; ') || undefined

/** An outbox entry in its stored form. */
export const OutboxEntry = z.object({
  facts: z.array(AuditFact).readonly(),
  events: z
    .array(z.object({ kind: z.enum(credentialEventKinds), event: CredentialEvent }))
    .readonly(),
})
export type OutboxEntry = z.output<typeof OutboxEntry>

type EventSource = Pick<
  CredentialSummary,
  | 'name'
  | 'environment'
  | 'label'
  | 'tags'
  | 'company'
  | 'expiresAt'
  | 'version'
  | 'fault'
  | 'hardExpiresAt'
  | 'expiryNoticeDays'
>

/**
 * Returns the outbox entry of a write: one audit entry and, unless `kind` is `null`, one event. If `isNoticeNew` is
 * true, the expiry notice of the grant is audited and published as well.
 */
export function outboxEntryOf(
  credential: EventSource,
  context: AuditContext,
  kind: CredentialEventKind | null,
  isNoticeNew = false,
): OutboxEntry {
  const event = eventOf(credential, context.at)
  const fact = auditFactOf(credential, context)
  const outcome = `${credential.expiryNoticeDays} days`
  const notice = auditFactOf(credential, {
    ...context,
    what: 'expiring',
    outcome,
    reason: undefined,
  })
  return {
    facts: isNoticeNew ? [fact, notice] : [fact],
    events: [
      ...(kind === null ? [] : [{ kind, event }]),
      ...(isNoticeNew ? [{ kind: 'expiring', event } as const] : []),
    ],
  }
}

/** Returns the outbox entry of a removal. `revoked` says whether the provider confirmed that the grant has ended. */
export const removalEntryOf = (
  credential: EventSource,
  context: AuditContext,
  revoked: boolean,
): OutboxEntry => ({
  facts: [auditFactOf(credential, context)],
  events: [
    {
      kind: 'removed',
      event: {
        ...eventOf({ ...credential, fault: null }, context.at),
        revoked,
        ...(context.erase === true && { erase: true }),
      },
    },
  ],
})

/** Returns a copy of an outbox entry in which each event has these labels. */
export const withLabels = (entry: OutboxEntry, labels: Labels): OutboxEntry => ({
  ...entry,
  events: entry.events.map(({ kind, event }) => ({
    kind,
    event: { ...event, ...labelMembersOf(labels) },
  })),
})

/**
 * Returns the content of an audit entry. The number and the hash are added when the entry is appended to the audit log.
 */
export const auditFactOf = (
  { name, version }: Pick<EventSource, 'name' | 'version'>,
  { at, who, what, outcome = 'ok', traceId = null, reason }: AuditContext,
): AuditFact => ({
  At: new Date(at).toISOString(),
  Who: who,
  What: what,
  Name: name,
  Version: version,
  Outcome: outcome,
  ...(traceId !== null && { TraceId: traceId }),
  ...(reason !== undefined && { Reason: reason }),
})

const eventOf = (credential: EventSource, at: number): CredentialEvent => ({
  Name: credential.name,
  Environment: credential.environment,
  ...labelMembersOf(credential),
  Expiry: new Date(credential.expiresAt).toISOString(),
  Version: credential.version,
  At: new Date(at).toISOString(),
  ...(credential.hardExpiresAt !== null && {
    HardExpiry: new Date(credential.hardExpiresAt).toISOString(),
  }),
  ...(credential.fault !== null && { Fault: credential.fault }),
})
