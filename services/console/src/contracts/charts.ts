/**
 * The page Charts: series from Prometheus if there is one, and otherwise the present values, which the page itself
 * collects while it is open.
 */
import { z } from 'zod'
import { MissingService } from './services.ts'

export const chartRanges = ['1h', '24h', '7d'] as const
export type ChartRange = (typeof chartRanges)[number]

export const ChartsQuery = z.strictObject({ range: z.enum(chartRanges).default('1h') })

const ChartSeries = z.object({
  Name: z.string(),
  Points: z.array(z.number().nullable()).meta({ description: 'the oldest first; null is a gap' }),
})
export type ChartSeries = z.output<typeof ChartSeries>

export const ChartView = z.object({
  Id: z.string(),
  Title: z.string(),
  Unit: z.enum(['count', 'per_minute', 'seconds']),
  Series: z.array(ChartSeries).nullable().meta({
    description: 'null if Prometheus has not responded; empty without Prometheus',
  }),
  Present: z.record(z.string(), z.record(z.string(), z.number())).meta({
    description:
      'the present values of the series, by replica; totals in place of rates; empty with Prometheus',
  }),
  Unavailable: MissingService.nullable().meta({
    description: 'the service of this chart if none of its replicas responds',
  }),
})
export type ChartView = z.output<typeof ChartView>

export const ChartsView = z
  .object({
    At: z.iso.datetime().meta({
      description: 'the time of the newest point, or of the present values',
    }),
    StepSeconds: z.int().nullable().meta({ description: 'null without Prometheus' }),
    Range: z.enum(chartRanges),
    Charts: z.array(ChartView),
    GrafanaUrl: z.string().nullable(),
  })
  .meta({ ref: 'Charts' })
export type ChartsView = z.output<typeof ChartsView>
