import { boundedText } from '@integration-host/shared/http/response-body'
import { DOCUMENT_LIMITS, parseJson } from '@integration-host/shared/json'
import { z } from 'zod'
import type { FiringAlert } from '../../view/firing-alerts.ts'

const DEADLINE_MS = 5_000
/** The maximum number of alerts that are read. */
const MAX_ALERTS = 100
/** The maximum number of characters of each text of an alert. */
const MAX_TEXT = 500

const AlertsResponse = z.object({
  status: z.literal('success'),
  data: z.object({
    alerts: z.array(
      z.object({
        labels: z.record(z.string(), z.string()),
        annotations: z.record(z.string(), z.string()).default({}),
        state: z.string(),
        activeAt: z
          .string()
          .transform((text) => Date.parse(text))
          .pipe(z.number()),
      }),
    ),
  }),
})

export type ReadAlerts = () => Promise<readonly FiringAlert[]>

/**
 * Returns the function that reads the firing alerts from Prometheus.
 *
 * @throws {Error} Prometheus does not respond within 5 s, or not with a list of alerts.
 */
export const createAlertReader =
  (prometheusUrl: string): ReadAlerts =>
  async () => {
    const response = await fetch(`${prometheusUrl}/api/v1/alerts`, {
      redirect: 'manual',
      signal: AbortSignal.timeout(DEADLINE_MS),
    })
    const { data } = AlertsResponse.parse(parseJson(await boundedText(response), DOCUMENT_LIMITS))
    return data.alerts
      .filter(({ state }) => state === 'firing')
      .slice(0, MAX_ALERTS)
      .map(({ labels, annotations, activeAt }) => ({
        labels,
        summary: (annotations['summary'] ?? '').slice(0, MAX_TEXT),
        activeAt,
      }))
  }
