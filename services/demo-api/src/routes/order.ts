import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { jsonResponse } from '@integration-host/shared/http/service-app'
import { z } from 'zod'
import type { IdempotencyCache } from '../order/idempotency-cache.ts'
import { timestamp } from '../order/timestamp.ts'
import { plainText, readParameters } from './parameters.ts'
import { textResponses } from './text-response.ts'
import { IDEMPOTENCY_KEY_PARAMETER, ORDER_PARAMETER, type StepCalls } from './step-call.ts'

const Parameters = z.object({ order: plainText(1_024) })
const OrderResponse = z
  .object({
    Order: z.string(),
    CreatedAt: z.string().meta({ description: 'server time, ISO 8601 with offset' }),
  })
  .meta({ ref: 'Order' })

interface OrderDeps {
  readonly cache: IdempotencyCache
  readonly calls: StepCalls
  readonly now: () => Date
}

/**
 * `GET /order?order=` → 201 `{Order, CreatedAt}`. `CreatedAt` is the server time. If an `Idempotency-Key` is repeated,
 * the first response is returned again.
 */
export function orderRoutes({ cache, calls, now }: OrderDeps) {
  return new Hono().get(
    '/order',
    describeRoute({
      operationId: 'createOrder',
      tags: ['demo'],
      summary: 'Create an order',
      parameters: [ORDER_PARAMETER, IDEMPOTENCY_KEY_PARAMETER],
      responses: {
        201: jsonResponse('created', OrderResponse),
        ...textResponses({ 400: 'the order is missing or invalid' }),
      },
    }),
    async (c) => {
      const { order } = await readParameters(c, Parameters)
      const { response, isRepeated } = cache.respond(
        c.req.header('Idempotency-Key'),
        JSON.stringify(['order', order]),
        () => ({ Order: order, CreatedAt: timestamp(now()) }),
      )
      calls.inc({ route: '/order', effect: isRepeated ? 'repeated' : 'new' })
      if (isRepeated) c.header('Idempotent-Replayed', 'true')
      return c.json(response, 201)
    },
  )
}
