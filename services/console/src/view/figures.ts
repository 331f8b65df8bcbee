/** Turns the series of the last hour, or of Prometheus, into the response for the page Charts. */
import type { ChartView, FigureRange } from '../contracts/figures.ts'
import type { MissingService } from '../contracts/missing-service.ts'
import type { ServicesView } from '../contracts/services.ts'
import type { ChartDefinition } from './charts.ts'
import type { FigureSeries } from './figure-history.ts'

/** The maximum number of series in a chart, so that the lines remain readable. */
const MAX_SERIES = 6

/** The length and the step of each range. */
export const RANGES: Readonly<
  Record<FigureRange, { readonly seconds: number; readonly step: number }>
> = {
  '1h': { seconds: 3_600, step: 60 },
  '24h': { seconds: 86_400, step: 600 },
  '7d': { seconds: 604_800, step: 3_600 },
}

/** Returns a service of which no replica responds; `null` if a replica responds, or if none is known. */
export function missingService({ Services }: ServicesView, service: string): MissingService | null {
  const replicas = Services.find(({ Name }) => Name === service)?.Replicas ?? []
  const last = replicas.toSorted((one, other) => one.Since.localeCompare(other.Since)).at(-1)
  if (last === undefined || replicas.some(({ State }) => State !== 'unreachable')) return null
  return {
    Service: service,
    Code: 'service_unavailable',
    Detail: `${service} does not respond (${last.Reason ?? 'no response'})`,
    Since: last.Since,
  }
}

/** Returns a chart with the series that have the highest values, in the order of their names. */
export function chartView(
  { id, title, unit }: ChartDefinition,
  series: readonly FigureSeries[] | null,
  unavailable: MissingService | null = null,
): ChartView {
  const highest = ({ points }: FigureSeries): number =>
    Math.max(0, ...points.map((point) => point ?? 0))
  const known = (series ?? []).filter(({ points }) => points.some((point) => point !== null))
  const shown = known
    .toSorted((one, other) => highest(other) - highest(one))
    .slice(0, MAX_SERIES)
    .toSorted((one, other) => one.name.localeCompare(other.name))
  return {
    Id: id,
    Title: title,
    Unit: unit,
    Series: shown.map(({ name, points }) => ({ Name: name, Points: [...points] })),
    Omitted: known.length - shown.length,
    Failed: series === null,
    Unavailable: unavailable,
  }
}
