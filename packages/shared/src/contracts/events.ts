/** What is published for other systems: the transitions of runs as messages, and webhooks. */
import { z } from 'zod'
import { HeaderStatusText, ReplayID, TransactionID } from './transaction.ts'

/**
 * Topic exchange that publishes transaction events to other systems; the routing key is
 * `transaction.<Process>.<status>`.
 */
export const TRANSACTIONS_EXCHANGE = 'integration.transactions'
/**
 * Fanout exchange that sends transitions to every replica of the coordinator. One message contains several transitions.
 */
export const COORDINATORS_EXCHANGE = 'integration.coordinators'

/**
 * One state transition of a run. The event contains only identifiers and the state of the run, because business data
 * stays in the database. Events of earlier releases lack the members that have a default here.
 */
export const TransactionEvent = z.object({
  // The event id contains the names of the process and of the transaction in percent-encoding. Percent-encoding throws
  // for an unpaired surrogate, so both names must be well-formed.
  Process: z.string().refine((name) => name.isWellFormed(), 'must be well-formed Unicode'),
  TransactionID,
  ReplayID,
  Status: HeaderStatusText,
  StepName: z.string(),
  /** The number of attempts so far of the step that is due. */
  Attempt: z.int().nonnegative().default(0),
  ErrorClass: z.string().nullable().default(null),
  /** The provider's code and message, such as `6240 Duplicate Name Exists Error`: a text from outside. */
  ProviderError: z.string().nullable().default(null),
  /** The credential that a `Waiting` run waits for. */
  WaitingFor: z.string().nullable().default(null),
  /** Whether the step that is due is in doubt: an earlier attempt may have taken effect. */
  InDoubt: z.boolean().default(false),
  /** The time from which the step is due; `null` if the run is over. */
  NextAttemptAt: z.iso.datetime().nullable().default(null),
  Version: z.int().nonnegative(),
  At: z.iso.datetime(),
})
export type TransactionEvent = z.output<typeof TransactionEvent>

/**
 * A transition in the stream of `GET /events`. In a coalesced stream it may stand for several transitions of its run:
 * `First` is the oldest of them.
 */
export const StreamedTransition = TransactionEvent.extend({
  First: z.object({ Version: z.int().nonnegative(), At: z.iso.datetime() }).optional(),
})
export type StreamedTransition = z.output<typeof StreamedTransition>

export const transactionRoutingKey = (event: TransactionEvent): string =>
  `transaction.${event.Process}.${event.Status.toLowerCase()}`

/** The name of the built-in process of the coordinator that delivers webhooks, and the name of its only step. */
export const WEBHOOK_PROCESS = 'Webhook'
export const WEBHOOK_STEP = 'deliver'

/** The events that a receiver can subscribe to. */
export const webhookTypes = [
  'credential.stored',
  'credential.faulted',
  'credential.expiring',
  'credential.removed',
  'transaction.completed',
  'transaction.failed',
  'transaction.in_doubt',
  'entry.changed',
  'entry.deleted',
  'entry.missing',
] as const
export type WebhookType = (typeof webhookTypes)[number]

/**
 * The body of a webhook. `data` contains names, identifiers, labels and classes only: no token and no business data.
 */
export const WebhookBody = z.object({
  type: z.enum(webhookTypes),
  timestamp: z.iso.datetime().meta({ description: 'when the event happened' }),
  data: z.looseObject({ Realm: z.string().nullable() }),
})
export type WebhookBody = z.output<typeof WebhookBody>
