/** The page with the state of each replica of each service. */
import { z } from 'zod'

const DependencyView = z.object({
  Name: z.string(),
  Status: z.enum(['up', 'connecting', 'down']),
  Since: z.iso.datetime(),
  Reason: z.string().nullable(),
  Notes: z.array(z.string()),
})

export const ReplicaView = z.object({
  Address: z.string(),
  State: z.enum(['ready', 'waiting', 'unreachable']),
  Since: z.iso.datetime(),
  Reason: z.string().nullable().meta({ description: 'why it is unreachable' }),
  Dependencies: z.array(DependencyView),
  Version: z.string().nullable(),
  StartedAt: z.iso.datetime().nullable(),
  LagMs: z
    .number()
    .nullable()
    .meta({ description: 'the delay of the event loop, 99th percentile' }),
  MemoryBytes: z.number().nullable(),
  ClockOffsetMs: z.number().nullable().meta({
    description: 'how far its clock is ahead of the clock of the console, to the second',
  }),
})
export type ReplicaView = z.output<typeof ReplicaView>

export const ServicesView = z
  .object({
    At: z.iso.datetime(),
    Services: z.array(z.object({ Name: z.string(), Replicas: z.array(ReplicaView) })),
  })
  .meta({ ref: 'Services' })
export type ServicesView = z.output<typeof ServicesView>

/** The response of `POST /api/integrity`: the counts of the coordinator's audit that must be 0. */
export const IntegrityView = z
  .object({ At: z.iso.datetime(), Violations: z.record(z.string(), z.number()) })
  .meta({ ref: 'Integrity' })
export type IntegrityView = z.output<typeof IntegrityView>

export const MissingService = z
  .object({
    Service: z.string(),
    Code: z.string().meta({ description: 'the code of the error, as in docs/errors.md' }),
    Detail: z.string().meta({ description: 'such as "coordinator does not respond (ETIMEDOUT)"' }),
    Since: z.iso.datetime().nullable().meta({
      description: 'since when the service has not responded; null if it responded with an error',
    }),
  })
  .meta({ ref: 'MissingService' })
export type MissingService = z.output<typeof MissingService>
