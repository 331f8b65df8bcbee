import { boundedText } from '@integration-host/shared/http/response-body'
import { DOCUMENT_LIMITS, parseJson } from '@integration-host/shared/json'
import { z } from 'zod'
import { withQuery } from '../../isomorphic/pages.ts'
import type { FiringAlert } from '../../view/firing-alerts.ts'

const DEADLINE_MS = 5_000
/** The maximum number of alerts that are read. */
const MAX_ALERTS = 100
/** The maximum number of characters of each text of an alert. */
const MAX_TEXT = 500

const Texts = z.record(z.string(), z.string())
const Alerts = z.object({
  alerts: z.array(
    z.object({
      labels: Texts,
      annotations: Texts.default({}),
      state: z.string(),
      activeAt: z
        .string()
        .transform((text) => Date.parse(text))
        .pipe(z.number()),
    }),
  ),
})
const Matrix = z.object({
  resultType: z.literal('matrix'),
  result: z.array(z.object({ metric: Texts, values: z.array(z.tuple([z.number(), z.string()])) })),
})

async function read<Data extends z.ZodType>(url: string, data: Data): Promise<z.output<Data>> {
  const response = await fetch(url, {
    redirect: 'manual',
    signal: AbortSignal.timeout(DEADLINE_MS),
  })
  const body = parseJson(await boundedText(response), DOCUMENT_LIMITS)
  return data.parse(z.object({ status: z.literal('success'), data: z.unknown() }).parse(body).data)
}

export type ReadAlerts = () => Promise<readonly FiringAlert[]>

/**
 * Returns the function that reads the firing alerts from Prometheus.
 *
 * @throws {Error} Prometheus does not respond within 5 s, or not with a list of alerts.
 */
export const createAlertReader =
  (prometheusUrl: string): ReadAlerts =>
  async () => {
    const { alerts } = await read(`${prometheusUrl}/api/v1/alerts`, Alerts)
    return alerts
      .filter(({ state }) => state === 'firing')
      .slice(0, MAX_ALERTS)
      .map(({ labels, annotations, activeAt }) => ({
        labels,
        summary: (annotations['summary'] ?? '').slice(0, MAX_TEXT),
        activeAt,
      }))
  }

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
    const url = withQuery(`${prometheusUrl}/api/v1/query_range`, { query, start, end, step })
    const { result } = await read(url, Matrix)
    const count = Math.floor((end - start) / step) + 1
    return result.map(({ metric, values }) => {
      const points = Array.from({ length: count }, (): number | null => null)
      for (const [at, text] of values) {
        const value = Number(text) // Prometheus returns NaN for a quantile without observations
        const index = Math.round((at - start) / step)
        if (Number.isFinite(value) && index >= 0 && index < count) points[index] = value
      }
      return { labels: metric, points }
    })
  }
