import { IntegrationError } from '@integration-host/shared/errors'
import { jsonResponse } from '@integration-host/shared/http/service-app'
import type { Metrics } from '@integration-host/shared/observability/metrics'
import { type Context, Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import { plainText, readParameters, timestampText } from './parameters.ts'
import { textResponses } from './text-response.ts'

const OrderParameters = z.object({ order: plainText(1_024) })
const ReportParameters = OrderParameters.extend({ created: timestampText() })

const OrderResponse = z
  .object({
    Order: z.string(),
    CreatedAt: z.string().meta({ description: 'server time, ISO 8601 with offset' }),
  })
  .meta({ ref: 'Order' })
const Report = z
  .object({
    Order: z.string(),
    CreatedAt: z.string().meta({ description: 'the value of created, unchanged' }),
    Status: z.string(),
  })
  .meta({ ref: 'Report' })

const ORDER = {
  name: 'order',
  in: 'query',
  required: true,
  description: '1 to 1024 characters, no control characters',
  schema: { type: 'string', minLength: 1, maxLength: 1_024 },
} as const
const CREATED = {
  name: 'created',
  in: 'query',
  required: true,
  description: 'ISO 8601 date and time with offset',
  schema: { type: 'string', maxLength: 64 },
} as const
const IDEMPOTENCY_KEY = {
  name: 'Idempotency-Key',
  in: 'header',
  required: false,
  description: 'a call with the same key gets the same response',
  schema: { type: 'string', maxLength: 2_048 },
} as const

const CACHED_RESPONSES = 10_000

/**
 * The paths that the steps of `OrderProcess` call. If an `Idempotency-Key` is repeated, the first response is returned
 * again.
 *
 * `GET /order?order=` → 201 `{Order, CreatedAt}`. `CreatedAt` is the server time; `now` returns it in epoch ms.
 *
 * `GET /report?order=&created=` → 200 `{Order, CreatedAt, Status}`. `CreatedAt` is the unchanged text of the parameter
 * `created`, and `Status` is a fixed text.
 */
export function orderAndReportRoutes({ metrics, now }: { metrics: Metrics; now: () => number }) {
  const cache = createIdempotencyCache(CACHED_RESPONSES)
  // Calls with a repeated idempotency key are counted separately, because such a call is a retry and has no second
  // effect.
  const calls = metrics.counter(
    'demo_api_step_calls_total',
    'Calls of /order and /report: effect "new" once per idempotency key, then "repeated"',
    ['route', 'effect'],
  )
  function respond<Made>(c: Context, route: string, parameters: object, make: () => Made): Made {
    const { response, isRepeated } = cache.respond(
      c.req.header('Idempotency-Key'),
      JSON.stringify([route, parameters]),
      make,
    )
    calls.inc({ route, effect: isRepeated ? 'repeated' : 'new' })
    if (isRepeated) c.header('Idempotent-Replayed', 'true')
    return response
  }
  return new Hono()
    .get(
      '/order',
      describeRoute({
        operationId: 'createOrder',
        tags: ['demo'],
        summary: 'Create an order',
        parameters: [ORDER, IDEMPOTENCY_KEY],
        responses: {
          201: jsonResponse('created', OrderResponse),
          ...textResponses({ 400: 'the order is missing or invalid' }),
        },
      }),
      async (c) => {
        const parameters = await readParameters(c, OrderParameters)
        const response = respond(c, '/order', parameters, () => ({
          Order: parameters.order,
          CreatedAt: new Date(now()).toISOString().replace('Z', '+00:00'),
        }))
        return c.json(response, 201)
      },
    )
    .get(
      '/report',
      describeRoute({
        operationId: 'createReport',
        tags: ['demo'],
        summary: 'Report that an order was created',
        parameters: [ORDER, CREATED, IDEMPOTENCY_KEY],
        responses: {
          200: jsonResponse('the order was reported', Report),
          ...textResponses({ 400: 'order or created is missing or invalid' }),
        },
      }),
      async (c) => {
        const parameters = await readParameters(c, ReportParameters)
        const response = respond(c, '/report', parameters, () => ({
          Order: parameters.order,
          CreatedAt: parameters.created,
          Status: 'The order was reported.',
        }))
        return c.json(response)
      },
    )
}

// Accepts keys of at most 2,048 characters. The coordinator's keys contain a transaction id of up to 128 characters,
// and percent-encoding can turn one character into nine.
const KEY = /^[\x21-\x7e]{1,2048}$/

/**
 * Stores the responses to the last `capacity` idempotency keys in memory. When the cache is full, the oldest response
 * is evicted.
 */
export function createIdempotencyCache(capacity: number) {
  const cached = new Map<string, { readonly request: string; readonly response: unknown }>()
  return {
    /**
     * Returns the response to `request`. For a new idempotency key, computes the response with `make`; for a repeated
     * key, returns the stored response.
     *
     * @throws {IntegrationError} invalid_request: the key is malformed, or was used for another request.
     */
    respond<Response>(key: string | undefined, request: string, make: () => Response) {
      if (key === undefined) return { response: make(), isRepeated: false }
      if (!KEY.test(key)) {
        throw new IntegrationError(
          'invalid_request',
          'Idempotency-Key: must be 1 to 2048 printable characters without spaces',
        )
      }
      const known = cached.get(key)
      if (known === undefined) {
        const response = make()
        cached.set(key, { request, response })
        const [oldest] = cached.keys()
        if (cached.size > capacity && oldest !== undefined) cached.delete(oldest)
        return { response, isRepeated: false }
      }
      if (known.request !== request) {
        throw new IntegrationError(
          'invalid_request',
          'Idempotency-Key: was used for another request',
        )
      }
      // The cast is safe: `request` contains the route, and the stored response was made for the same `request`.
      return { response: known.response as Response, isRepeated: true }
    },
  }
}
