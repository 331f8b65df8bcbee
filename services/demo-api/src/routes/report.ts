import { jsonResponse } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { IdempotencyCache } from '../order/idempotency-cache.ts'
import { isTimestamp } from '../order/timestamp.ts'
import { plainText, readParameters } from './parameters.ts'
import { textResponses } from './text-response.ts'
import { IDEMPOTENCY_KEY_PARAMETER, ORDER_PARAMETER, type StepCalls } from './step-call.ts'

const Parameters = z.object({
  order: plainText(1_024),
  created: z
    .string()
    .min(1, 'must not be empty')
    .max(64, 'must have at most 64 characters')
    .refine(
      isTimestamp,
      'must be ISO 8601 with offset, such as 2026-11-20T10:00:00+00:00 (a + is written %2B)',
    ),
})
const Report = z
  .object({
    Order: z.string(),
    CreatedAt: z.string().meta({ description: 'the value of created, unchanged' }),
    Status: z.string(),
  })
  .meta({ ref: 'Report' })
const STATUS = 'The order was reported.'

interface ReportDeps {
  readonly cache: IdempotencyCache
  readonly calls: StepCalls
}

/**
 * `GET /report?order=&created=` → 200 `{Order, CreatedAt, Status}`. `CreatedAt` is the unchanged text of the parameter
 * `created`, and `Status` is a fixed text.
 */
export function reportRoutes({ cache, calls }: ReportDeps) {
  return new Hono().get(
    '/report',
    describeRoute({
      operationId: 'createReport',
      tags: ['demo'],
      summary: 'Report that an order was created',
      parameters: [
        ORDER_PARAMETER,
        {
          name: 'created',
          in: 'query',
          required: true,
          description: 'ISO 8601 date and time with offset',
          schema: { type: 'string', maxLength: 64 },
        },
        IDEMPOTENCY_KEY_PARAMETER,
      ],
      responses: {
        200: jsonResponse('the order was reported', Report),
        ...textResponses({ 400: 'order or created is missing or invalid' }),
      },
    }),
    async (c) => {
      const { order, created } = await readParameters(c, Parameters)
      const { response, isRepeated } = cache.respond(
        c.req.header('Idempotency-Key'),
        JSON.stringify(['report', order, created]),
        () => ({ Order: order, CreatedAt: created, Status: STATUS }),
      )
      calls.inc({ route: '/report', effect: isRepeated ? 'repeated' : 'new' })
      if (isRepeated) c.header('Idempotent-Replayed', 'true')
      return c.json(response)
    },
  )
}
