import { boundedText } from '@integration-host/shared/http/response-body'
import { DOCUMENT_LIMITS, parseJson } from '@integration-host/shared/json'
import { z } from 'zod'

const DEADLINE_MS = 5_000

const RangeResponse = z.object({
  status: z.literal('success'),
  data: z.object({
    resultType: z.literal('matrix'),
    result: z.array(
      z.object({
        metric: z.record(z.string(), z.string()),
        values: z.array(z.tuple([z.number(), z.string()])),
      }),
    ),
  }),
})

/** A range of time in epoch seconds. There is a point at `end`, and a point at each whole step before `end`. */
export interface TimeRange {
  readonly start: number
  readonly end: number
  readonly step: number
}

export interface RangeSeries {
  readonly labels: Readonly<Record<string, string>>
  /** The value of each step, oldest first; `null` is a gap. */
  readonly points: (number | null)[]
}

export type ReadRange = (promQl: string, range: TimeRange) => Promise<readonly RangeSeries[]>

/**
 * Returns the function that reads the series of a query from Prometheus.
 *
 * @throws {Error} Prometheus does not respond within 5 s, or not with a matrix.
 */
export const createRangeReader =
  (prometheusUrl: string): ReadRange =>
  async (query, { start, end, step }) => {
    const parameters = new URLSearchParams({
      query,
      start: String(start),
      end: String(end),
      step: String(step),
    })
    const response = await fetch(`${prometheusUrl}/api/v1/query_range?${parameters.toString()}`, {
      redirect: 'manual',
      signal: AbortSignal.timeout(DEADLINE_MS),
    })
    const { data } = RangeResponse.parse(parseJson(await boundedText(response), DOCUMENT_LIMITS))
    const count = Math.floor((end - start) / step) + 1
    return data.result.map(({ metric, values }) => {
      const points = Array.from({ length: count }, (): number | null => null)
      for (const [at, text] of values) {
        const value = Number(text) // Prometheus returns NaN for a quantile without observations
        const index = Math.round((at - start) / step)
        if (Number.isFinite(value) && index >= 0 && index < count) points[index] = value
      }
      return { labels: metric, points }
    })
  }
