/**
 * The page Charts: metrics of the last hour from the console's memory, and metrics of longer ranges from
 * Prometheus.
 */
import { z } from 'zod'
import { MissingService } from './missing-service.ts'

const figureRanges = ['1h', '24h', '7d'] as const

export const FiguresQuery = z.strictObject({ range: z.enum(figureRanges).default('1h') })

const ChartView = z.object({
  Id: z.string(),
  Title: z.string(),
  Unit: z.enum(['count', 'per_minute', 'seconds']),
  Series: z.array(
    z.object({
      Name: z.string(),
      Points: z
        .array(z.number().nullable())
        .meta({ description: 'the oldest first; null is a gap' }),
    }),
  ),
  Omitted: z.int().meta({ description: 'further series, whose values are lower' }),
  Failed: z
    .boolean()
    .meta({ description: 'Prometheus has not answered the queries of this chart' }),
  Unavailable: MissingService.nullable().meta({
    description:
      'the service of this chart if none of its replicas responds; null for ranges from Prometheus',
  }),
})
export type ChartView = z.output<typeof ChartView>

export const FiguresView = z
  .object({
    Range: z.enum(figureRanges),
    Until: z.iso.datetime().meta({ description: 'the time of the newest point' }),
    StepSeconds: z.int(),
    Charts: z.array(ChartView),
    Markers: z.array(z.object({ At: z.iso.datetime(), Text: z.string() })).meta({
      description: 'what changed in this time',
    }),
    Ranges: z.array(z.enum(figureRanges)).meta({
      description: 'the ranges that are offered; longer ones need PROMETHEUS_URL',
    }),
    WatchedSince: z.iso.datetime().meta({ description: 'the memory begins then' }),
    GrafanaUrl: z.string().nullable(),
  })
  .meta({ ref: 'Figures' })
export type FiguresView = z.output<typeof FiguresView>
export type FigureRange = FiguresView['Range']
