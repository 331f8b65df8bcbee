import { z } from 'zod'

const Percent = z.number().min(0).max(100)

/**
 * The settings that determine how the sandbox sends webhooks. Some settings cause the faults that Intuit's
 * documentation warns of.
 */
export const WebhookSettings = z
  .strictObject({
    format: z.enum(['cloudevents', 'legacy']).meta({ description: 'the format of notifications' }),
    batchMs: z.int().min(0).max(60_000).meta({
      description: 'changes within this time are sent in one notification, at most 100 of them',
    }),
    copies: z.int().min(1).max(10).meta({ description: 'how often each notification is sent' }),
    shuffled: z.boolean().meta({
      description: 'whether each change is a notification of its own, sent in random order',
    }),
    dropPercent: Percent.meta({ description: 'the share of changes that are never sent' }),
    wrongSignaturePercent: Percent.meta({
      description: 'the share of attempts with a wrong signature; such an attempt is repeated',
    }),
  })
  .meta({ ref: 'WebhookSettings' })
export type WebhookSettings = z.output<typeof WebhookSettings>

/** The default settings: webhooks are sent as Intuit documents them, without faults. */
export const documentedWebhooks: WebhookSettings = {
  format: 'cloudevents',
  batchMs: 50,
  copies: 1,
  shuffled: false,
  dropPercent: 0,
  wrongSignaturePercent: 0,
}
