/**
 * What the metrics of a service say now, as JSON, for programs that show it without Prometheus, such as the console. It
 * names no company.
 */
import { z } from 'zod'

const Counts = z.record(z.string(), z.number())

const CoordinatorSummary = z.object({
  Runs: Counts.meta({ description: 'runs by status, at the latest count' }),
  Steps: Counts.meta({ description: 'attempts by outcome, since the start of the process' }),
  Due: z
    .array(
      z.object({
        Process: z.string(),
        Step: z.string(),
        Count: z.number(),
        OldestSeconds: z.number(),
        IdleSeconds: z.number().meta({
          description: 'time since this process ended an attempt of the step, or has started',
        }),
      }),
    )
    .meta({ description: 'the runs that a worker could claim at the latest count, by step' }),
  DeadLetters: Counts.meta({ description: 'by process' }),
  Violations: Counts.meta({ description: 'counts of the audit that must be 0' }),
  EntriesOutside: z
    .array(z.object({ State: z.string(), Entity: z.string(), Count: z.number() }))
    .optional()
    .meta({
      description:
        'objects that runs have written, and that were found changed, voided, deleted or missing within a day; absent if there is none',
    }),
  Online: z.boolean().nullable().meta({
    description: 'whether a probe reaches the internet; null before the first probe',
  }),
})

const GatewaySummary = z.object({
  Calls: Counts.meta({
    description: 'calls by the class of their status, such as 2xx, since the start of the process',
  }),
  CallTimes: z
    .object({ P50Seconds: z.number(), P95Seconds: z.number() })
    .nullable()
    .meta({ description: 'times of the calls of the last minute; null without any' }),
  CoolingDown: z.int().meta({ description: 'companies in a cool-down after a 429' }),
  MeteredCalls: z.number().nullable().meta({ description: 'of this month' }),
  MonthlyBudget: z.number().nullable(),
})

const TokenServiceSummary = z.object({
  ClientRejected: z.boolean().meta({ description: 'the provider rejects the client credentials' }),
  NearestExpirySeconds: z.number().nullable().meta({
    description: 'time until the next access token of a living grant expires; negative if it has',
  }),
})

export const MetricsSummary = z
  .object({
    Version: z.string(),
    StartedAt: z.iso.datetime(),
    LagMs: z.number().meta({
      description: 'the delay of the event loop since the last read, 99th percentile',
    }),
    MemoryBytes: z.int(),
    Coordinator: CoordinatorSummary.optional(),
    Gateway: GatewaySummary.optional(),
    TokenService: TokenServiceSummary.optional(),
  })
  .meta({ ref: 'MetricsSummary' })
export type MetricsSummary = z.output<typeof MetricsSummary>
/** The part of the summary that only one service has. */
export type ServiceSummary = Pick<MetricsSummary, 'Coordinator' | 'Gateway' | 'TokenService'>
