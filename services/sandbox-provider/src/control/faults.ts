import { z } from 'zod'
import { apiErrorCodes } from '../accounting/api-errors.ts'

export const faultTargets = ['token', 'api', 'revoke', 'discovery'] as const
export type FaultTarget = (typeof faultTargets)[number]

// Setting these breaks the framing of the response, not its meaning.
const FRAMING = ['content-length', 'transfer-encoding', 'connection', 'content-type']
const HeaderName = z
  .string()
  .regex(/^[A-Za-z0-9-]{1,64}$/, 'must be a header name')
  .refine((name) => !FRAMING.includes(name.toLowerCase()), 'must not be a framing header')
const HeaderValue = z.string().regex(/^[\x20-\x7e]{0,1024}$/, 'must be printable ASCII')

/** What happens to the next `calls` calls of `target`. */
export const Fault = z
  .strictObject({
    target: z.enum(faultTargets),
    calls: z.int().min(1).max(100_000).default(1),
    status: z
      .int()
      .min(200)
      .max(599)
      .optional()
      .meta({ description: 'respond with this instead of doing anything' }),
    fault: z.enum(apiErrorCodes).optional().meta({
      description:
        'api only: respond with this error of the accounting API, its documented status and body; a status beside it replaces the documented one',
    }),
    body: z.json().optional().meta({ description: 'text as it is, anything else as JSON' }),
    headers: z.record(HeaderName, HeaderValue).optional(),
    contentType: HeaderValue.optional(),
    latencyMs: z
      .int()
      .min(0)
      .max(120_000)
      .optional()
      .meta({ description: 'delay the response this long, beside the general latency' }),
    drop: z.enum(['before', 'after']).optional().meta({
      description: 'reset the connection: before doing anything, or with all done but the response',
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
export type Fault = z.output<typeof Fault>

export interface Faults {
  /** Puts a fault behind those that wait. */
  add(fault: Fault): void
  /** The fault of this call, which then has one call less; `null` if there is none. */
  take(target: FaultTarget): Fault | null
  waiting(): readonly Fault[]
  clear(): void
}

export function createFaults(): Faults {
  let waiting: readonly Fault[] = []
  return {
    add: (fault) => void (waiting = [...waiting, fault]),
    take(target) {
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
