/** Derives the webhooks of an event: one for each receiver that subscribes to the event. */
import { createHash } from 'node:crypto'
import {
  type CredentialEvent,
  type CredentialEventKind,
  credentialMessageId,
} from '@integration-host/shared/contracts/credential'
import type { EntryEvent } from '@integration-host/shared/contracts/provider-event'
import { realmOf } from '@integration-host/shared/contracts/realm'
import {
  WEBHOOK_PROCESS,
  webhookTypes,
  type WebhookType,
} from '@integration-host/shared/contracts/events'
import { providerErrorOf } from '@integration-host/shared/provider-profile/provider-fault'
import { z } from 'zod'
import type { AnnouncedRun, NewWebhook } from '../run/transaction-source.ts'
import type { Receiver } from './receivers.ts'

/** The initial data of a run of the process `Webhook`. The store adds the time of the event. */
export const Notice = z.object({
  Receiver: z.string(),
  MessageID: z.string(),
  Type: z.enum(webhookTypes),
  /** The time of the event. */
  At: z.iso.datetime({ offset: true }),
  Data: z.record(z.string(), z.json()),
})
export type Notice = z.output<typeof Notice>

type Receivers = readonly Pick<Receiver, 'id' | 'events'>[]

/** The number of delivery orders (lanes) of webhooks without a realm. One of each is sent at a time. */
const LANES = 64

const ENDS = [
  ['Completed', 'transaction.completed'],
  ['Failed', 'transaction.failed'],
  ['Undone', 'transaction.failed'],
  ['UndoFailed', 'transaction.failed'],
] as const

interface Event {
  readonly type: WebhookType
  readonly messageId: string
  readonly data: Notice['Data']
  readonly lane: string
}

/**
 * Returns the webhooks of a transition. The store adds the realm of the run and the time of the transition to them.
 *
 * A step is reported as in doubt only once, even if several attempts leave it in doubt: the message id of this event
 * contains the step instead of the version of the run.
 */
export function webhooksOfTransition(receivers: Receivers, run: AnnouncedRun): NewWebhook[] {
  const { Process, TransactionID, ReplayID, StepName, Version, Status, ErrorClass, InDoubt } = run
  const ProviderError = providerErrorOf(run)
  if (Process === WEBHOOK_PROCESS) return []
  const key = [Process, TransactionID, ReplayID]
  const events: Pick<Event, 'type' | 'messageId'>[] = []
  const isWanted = (type: WebhookType): boolean =>
    receivers.some(({ events: own }) => own.has(type))
  if (InDoubt && isWanted('transaction.in_doubt'))
    events.push({
      type: 'transaction.in_doubt',
      messageId: messageIdOf([...key, StepName, 'in_doubt']),
    })
  for (const [status, type] of ENDS)
    if (Status === status && isWanted(type))
      events.push({ type, messageId: messageIdOf([...key, Version]) })
  if (events.length === 0) return []
  const data = {
    Process,
    TransactionID,
    ReplayID,
    Status,
    StepName,
    Version,
    ErrorClass,
    ...(ProviderError !== null && { ProviderError }),
    InDoubt,
  }
  // The lane is derived from the transaction, so that all events of the transaction stay in order even if the
  // transaction has no realm.
  const lane = `${Number.parseInt(digest(`${Process}\n${TransactionID}`).slice(0, 2), 16) % LANES}`
  return events.flatMap((event) => webhooksOf(receivers, { ...event, data, lane }))
}

/** The beginning of the ids of webhooks that report the removal of a credential. */
export const REMOVAL_WEBHOOK = 'credential.removed-'

/** Returns the webhooks of a credential event; none if receivers cannot subscribe to events of this kind. */
export function webhooksOfCredential(
  receivers: Receivers,
  kind: CredentialEventKind,
  event: CredentialEvent,
): NewWebhook[] {
  const type = webhookTypes.find((known) => known === `credential.${kind}`)
  if (type === undefined) return []
  const {
    Name,
    Environment,
    Label,
    CompanyName,
    Tags,
    Expiry,
    Version,
    At,
    HardExpiry,
    Fault,
    revoked,
  } = event
  // The webhook of a removal outlives the erasure that the removal requests, so it holds nothing that is to be erased.
  const isLabelled = event.erase !== true
  const messageId = messageIdOf([credentialMessageId(event, kind)])
  const data = {
    Name,
    Environment,
    ...(isLabelled && Label !== undefined && { Label }),
    ...(isLabelled && CompanyName !== undefined && { CompanyName }),
    ...(isLabelled && Tags !== undefined && { Tags }),
    Expiry,
    Version,
    ...(HardExpiry !== undefined && { HardExpiry }),
    // The webhook contains the class of the fault but not its message, because the message quotes the provider.
    ...(Fault !== undefined && {
      Fault: {
        Code: Fault.Code,
        At: Fault.At,
        ...(Fault.Final !== undefined && { Final: Fault.Final }),
      },
    }),
    ...(revoked !== undefined && { revoked }),
  }
  return webhooksOf(receivers, { type, messageId, data, lane: '' }).map((webhook) => ({
    ...webhook,
    Realm: realmOf(Name),
    At,
  }))
}

/** Returns the webhooks of an object that a run has written, and that was changed outside or is gone. */
export function webhooksOfEntry(
  receivers: Receivers,
  { Id, Realm, At, Kind, Changed, ...data }: EntryEvent,
): NewWebhook[] {
  const event = { type: `entry.${Kind}`, messageId: messageIdOf([Id]), lane: '' } as const
  return webhooksOf(receivers, { ...event, data: { ...data, Changed: [...Changed] } }).map(
    (webhook) => ({ ...webhook, Realm, At }),
  )
}

const webhooksOf = (receivers: Receivers, { type, messageId, data, lane }: Event): NewWebhook[] =>
  receivers
    .filter(({ events }) => events.has(type))
    .map(({ id }) => ({
      Receiver: id,
      Lane: lane,
      // Every copy of an event results in the same run id, so that a duplicate does not queue a second run.
      TransactionID: `${type}-${digest(`${id}\n${messageId}`).slice(0, 32)}`,
      InitialData: { Receiver: id, MessageID: messageId, Type: type, Data: data },
    }))

/**
 * Returns the `webhook-id`: the message id of the event in at most 255 printable characters. The `webhook-id` contains
 * no full stop, because full stops separate the parts of the signed text.
 */
function messageIdOf(parts: readonly (string | number)[]): string {
  const id =
    parts.length === 1
      ? String(parts[0])
      : parts.map((part) => encodeURIComponent(part).replaceAll('.', '%2E')).join('/')
  return id.length <= 255 ? id : digest(id)
}

const digest = (text: string): string => createHash('sha256').update(text).digest('hex')
