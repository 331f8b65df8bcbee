import { z } from 'zod'

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
