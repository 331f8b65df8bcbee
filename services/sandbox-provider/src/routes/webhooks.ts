import {
  EntityId,
  providerEntities,
  providerOperations,
} from '@integration-host/shared/contracts/provider-event'
import { Realm } from '@integration-host/shared/contracts/realm'
import { IntegrationError } from '@integration-host/shared/errors'
import { responses, validate } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { z } from 'zod'
import type { Provider } from '../provider.ts'
import { type WebhookSender, WebhookSettings } from '../webhooks/webhook-sender.ts'
import { operation } from './guards.ts'

const MAX_BURST = 10_000

const Changes = z
  .strictObject({
    realm: Realm,
    entity: z.enum(providerEntities).default('Invoice'),
    operation: z.enum(providerOperations).default('update'),
    id: EntityId.default('1').meta({ description: 'the id of the first object' }),
    deletedId: EntityId.optional().meta({ description: 'for a merge' }),
    changedAt: z.iso.datetime().optional().meta({ description: 'now if it is missing' }),
    count: z.int().min(1).max(MAX_BURST).default(1).meta({
      description: 'how many changes; each one after the first has the next higher id',
    }),
  })
  .refine(({ id, count }) => count === 1 || /^\d{1,12}$/.test(id), {
    message: 'several changes need an id that is a number',
  })
  .meta({ ref: 'WebhookChanges' })

const Count = z.int().nonnegative()
const View = z
  .object({
    settings: WebhookSettings,
    counts: z.object({
      changes: Count,
      dropped: Count,
      delivered: Count,
      waiting: Count,
      givenUp: Count,
      attempts: Count,
      statuses: z
        .record(z.string(), Count)
        .meta({ description: 'attempts by response status; 0: no response within 3 s' }),
    }),
  })
  .meta({ ref: 'Webhooks' })

const SettingsChange = WebhookSettings.partial()
  .refine((part) => Object.keys(part).length > 0, 'must name a setting')
  .meta({ ref: 'WebhookSettingsChange' })

/**
 * The routes under `/sandbox/webhooks`. They send webhooks on demand, and change how webhooks are
 * sent.
 */
export function webhookRoutes({ webhooks, now }: Provider) {
  const sender = (): WebhookSender => {
    if (webhooks === null)
      throw new IntegrationError('not_found', 'WEBHOOK_URL is not set, so no webhooks are sent')
    return webhooks
  }
  const view = () => ({ settings: sender().settings(), counts: sender().counts() })
  return new Hono()
    .get(
      '/sandbox/webhooks',
      operation(
        'getWebhooks',
        'How webhooks are sent, and what was sent since the last reset',
        responses(View, 'not_found'),
      ),
      (c) => c.json(view()),
    )
    .put(
      '/sandbox/webhooks',
      operation(
        'changeWebhooks',
        'Change how webhooks are sent: format, duplicates, order, losses, wrong signatures',
        responses(View, 'invalid_request', 'not_found'),
      ),
      validate('json', SettingsChange),
      (c) => {
        const part = Object.entries(c.req.valid('json')).filter(([, value]) => value !== undefined)
        sender().change(Object.fromEntries(part))
        return c.json(view())
      },
    )
    .post(
      '/sandbox/webhooks',
      operation(
        'sendWebhooks',
        'Send webhooks for changes that the books need not contain, also a burst of them',
        responses({ 202: View }, 'invalid_request', 'not_found'),
      ),
      validate('json', Changes),
      (c) => {
        const { id, count, changedAt, deletedId, ...change } = c.req.valid('json')
        const { onChange } = sender()
        for (let index = 0; index < count; index += 1)
          onChange({
            ...change,
            id: count === 1 ? id : String(Number(id) + index),
            changedAt: changedAt === undefined ? now() : Date.parse(changedAt),
            ...(deletedId !== undefined && { deletedId }),
          })
        return c.json(view(), 202)
      },
    )
    .post(
      '/sandbox/webhooks/retry',
      operation(
        'retryWebhooks',
        'Send the notifications that were not accepted now instead of at their times',
        responses(z.object({ retried: Count }), 'not_found'),
      ),
      (c) => c.json({ retried: sender().retryNow() }),
    )
}
