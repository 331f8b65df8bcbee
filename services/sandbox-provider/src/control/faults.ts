import { z } from 'zod'

export const faultTargets = ['token', 'api', 'revoke', 'discovery'] as const
export type FaultTarget = (typeof faultTargets)[number]

// Whoever sets these by hand breaks the framing of the answer, not its meaning.
const FRAMING = ['content-length', 'transfer-encoding', 'connection', 'content-type']
const HeaderName = z
  .string()
  .regex(/^[A-Za-z0-9-]{1,64}$/, 'must be a header name')
  .refine((name) => !FRAMING.includes(name.toLowerCase()), 'must not be a framing header')
const HeaderValue = z.string().regex(/^[\x20-\x7e]{0,1024}$/, 'must be printable ASCII')

/** "The next `calls` calls of `target` go like this." */
export const Fault = z
  .strictObject({
    target: z.enum(faultTargets),
    calls: z.int().min(1).max(100_000).default(1),
    status: z
      .int()
      .min(200)
      .max(599)
      .optional()
      .meta({ description: 'answer this instead of doing anything' }),
    body: z.json().optional().meta({ description: 'text as it is, anything else as JSON' }),
    headers: z.record(HeaderName, HeaderValue).optional(),
    contentType: HeaderValue.optional(),
    latencyMs: z
      .int()
      .min(0)
      .max(120_000)
      .optional()
      .meta({ description: 'held back this long, beside the general latency' }),
    drop: z.enum(['before', 'after']).optional().meta({
      description: 'reset the connection: before doing anything, or with all done but the answer',
    }),
  })
  .refine((fault) => fault.status ?? fault.drop ?? fault.latencyMs, {
    message: 'must have status, drop or latencyMs',
  })
  .refine((fault) => fault.status === undefined || fault.drop === undefined, {
    message: 'status and drop exclude each other',
  })
  .refine(
    ({ status, body, headers, contentType }) =>
      status !== undefined || [body, headers, contentType].every((part) => part === undefined),
    { message: 'body, headers and contentType need a status' },
  )
export type Fault = z.output<typeof Fault>

export interface Faults {
  /** Puts a fault behind those that wait. */
  add(fault: Fault): void
  /** The fault of this call, or null; spends one of its calls. */
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
