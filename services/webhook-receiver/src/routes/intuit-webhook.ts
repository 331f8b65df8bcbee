import { IntegrationError } from '@integration-host/shared/errors'
import { responses } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { AcceptDelivery } from '../delivery/accept-delivery.ts'
import { type BodyMemory, readBody, tooLarge } from '../delivery/body-memory.ts'

export const INTUIT_PATH = '/webhooks/intuit'

/**
 * The largest body of a delivery. Intuit documents no limit; its webinars mention 100 events and about 1 MB. The body
 * is buffered, because its signature covers all of it.
 */
const MAX_BODY_BYTES = 1_048_576

/**
 * The deadline for the response, from the first byte of a delivery. Intuit counts a delivery as failed after 3 s, so a
 * later response would be useless.
 */
export const RESPONSE_DEADLINE_MS = 2_500

export interface IntuitWebhookDeps {
  readonly accept: AcceptDelivery
  readonly memory: BodyMemory
  /** Called for each delivery with `accepted`, `body_incomplete` or the code of the problem. */
  readonly count: (outcome: string) => void
  readonly deadlineMs?: number
}

const Accepted = z
  .object({
    published: z.int().meta({ description: 'changes whose event the broker has confirmed' }),
    ignored: z.int().meta({ description: 'changes that cannot be published' }),
  })
  .meta({ ref: 'AcceptedDelivery' })

const codeOf = (error: unknown): string =>
  error instanceof IntegrationError ? error.code : 'internal_error'

/**
 * Maps a problem code to the outcome that is counted if the body was not read completely. The code `invalid_request`
 * has two causes: a client has ended the body early, or a signed body has no known format. The metric must count
 * these causes separately, because any client can end a body early.
 */
const unreadOutcomes: ReadonlyMap<string, string> = new Map([
  ['invalid_request', 'body_incomplete'],
])

/** `POST /webhooks/intuit`: accepts a notification of Intuit in either format. */
export function intuitWebhookRoutes(deps: IntuitWebhookDeps) {
  const { accept, memory, count, deadlineMs = RESPONSE_DEADLINE_MS } = deps
  return new Hono().post(
    INTUIT_PATH,
    describeRoute({
      operationId: 'receiveIntuitWebhook',
      tags: ['webhooks'],
      summary: 'Publish the changes of a signed notification; 200 only after the broker has them',
      parameters: [
        {
          in: 'header',
          name: 'intuit-signature',
          required: true,
          description: 'Base64 of HMAC-SHA256 over the body, with a verifier token as the key',
          schema: { type: 'string' },
        },
      ],
      responses: responses(
        Accepted,
        'invalid_request',
        'signature_invalid',
        'request_timeout',
        'payload_too_large',
        'unsupported_media_type',
        'broker_unavailable',
        'too_many_deliveries',
      ),
    }),
    async (c) => {
      // `AbortSignal.timeout` is not used, because its timer would continue after the delivery. Thousands of such
      // timers would occupy memory.
      const late = new AbortController()
      const timer = setTimeout(() => late.abort(), deadlineMs)
      const deadline = late.signal
      let isBodyRead = false
      try {
        // The body is not inflated, because its sender is unknown until the signature is verified. Otherwise any client
        // could make the receiver use far more bytes of memory than the client has sent.
        if ((c.req.header('Content-Encoding') ?? 'identity').toLowerCase() !== 'identity')
          throw new IntegrationError(
            'unsupported_media_type',
            'the body must have no content coding',
          )
        if (Number(c.req.header('Content-Length') ?? 0) > MAX_BODY_BYTES)
          throw tooLarge(MAX_BODY_BYTES)
        const body = await readBody(c.req.raw.body, { memory, maxBytes: MAX_BODY_BYTES, deadline })
        isBodyRead = true
        const { events, ignored } = await accept({
          body: body.bytes,
          signature: c.req.header('intuit-signature') ?? null,
          deadline,
          onSettled: () => body[Symbol.dispose](),
        })
        count('accepted')
        return c.json({ published: events.length, ignored: ignored.length })
      } catch (error) {
        // The connection is closed, because the unread bytes of the body would otherwise be parsed as the next request.
        if (!isBodyRead) c.header('Connection', 'close')
        count(isBodyRead ? codeOf(error) : (unreadOutcomes.get(codeOf(error)) ?? codeOf(error)))
        throw error
      } finally {
        clearTimeout(timer)
      }
    },
  )
}
