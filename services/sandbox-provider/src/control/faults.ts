import { z } from 'zod'
import { apiErrorCodes } from '../accounting/api-errors.ts'

export const faultTargets = ['token', 'api', 'revoke', 'discovery'] as const
export type FaultTarget = (typeof faultTargets)[number]

// Headers that describe how a response is sent on the connection. An injected fault must not set them, because the
// result would be an invalid HTTP message.
const FRAMING = ['content-length', 'transfer-encoding', 'connection', 'content-type']
const HeaderName = z
  .string()
  .regex(/^[A-Za-z0-9-]{1,64}$/, 'must be a header name')
  .refine((name) => !FRAMING.includes(name.toLowerCase()), 'must not be a framing header')
const HeaderValue = z.string().regex(/^[\x20-\x7e]{0,1024}$/, 'must be printable ASCII')

/** An injected fault. It makes the next `calls` calls of `target` fail, or delays their responses. */
export const Fault = z
  .strictObject({
    target: z.enum(faultTargets),
    calls: z.int().min(1).max(100_000).default(1),
    status: z
      .int()
      .min(200)
      .max(599)
      .optional()
      .meta({ description: 'respond with this status and do nothing else' }),
    fault: z.enum(apiErrorCodes).optional().meta({
      description:
        'api only: respond with this error of the accounting API, its documented status and body; a status beside it replaces the documented one',
    }),
    body: z
      .unknown()
      .optional()
      .meta({ description: 'a string is sent unchanged, any other value as JSON' }),
    headers: z.record(HeaderName, HeaderValue).optional(),
    contentType: HeaderValue.optional(),
    latencyMs: z.int().min(0).max(120_000).optional().meta({
      description: 'delay the response by this time, in addition to the setting latencyMs',
    }),
    drop: z.enum(['before', 'after']).optional().meta({
      description:
        'reset the connection: before the call has an effect, or after its effect and before the response',
    }),
  })
  .refine(({ status, fault, drop, latencyMs }) => status ?? fault ?? drop ?? latencyMs, {
    message: 'must have status, fault, drop or latencyMs',
  })
  .refine(({ status, fault, drop }) => drop === undefined || (status ?? fault) === undefined, {
    message: 'status or fault, and drop exclude each other',
  })
  .refine(
    ({ target, fault, body }) => fault === undefined || (target === 'api' && body === undefined),
    {
      message: 'fault is for the target api, and has its own body',
    },
  )
  .refine(
    ({ status, fault, body, headers, contentType }) =>
      (status ?? fault) !== undefined ||
      [body, headers, contentType].every((part) => part === undefined),
    { message: 'body, headers and contentType need a status or a fault' },
  )
  .meta({ ref: 'Fault' })
export type Fault = z.output<typeof Fault>

/** Creates the queue of the injected faults. */
export function createFaults() {
  let waiting: readonly Fault[] = []
  return {
    add: (fault: Fault) => void (waiting = [...waiting, fault]),
    /** Returns the first fault for `target`, and counts one of its `calls` as used; `null` if there is none. */
    take(target: FaultTarget): Fault | null {
      const next = waiting.find((fault) => fault.target === target)
      if (next === undefined) return null
      waiting = waiting.flatMap((fault) => {
        if (fault !== next) return [fault]
        return fault.calls > 1 ? [{ ...fault, calls: fault.calls - 1 }] : []
      })
      return next
    },
    waiting: () => waiting,
    clear: () => void (waiting = []),
  }
}
