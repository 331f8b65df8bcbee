/** One sample of a metric in Prometheus' text format. */
export interface Sample {
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

/** The samples of a replica, by the name of the metric. */
export type Samples = ReadonlyMap<string, readonly Sample[]>

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: \d+)?$/
const LABEL = /(?<!\w)([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g

/** Parses Prometheus' text format. Comments and lines of another form are ignored. */
export function parseMetrics(text: string): Samples {
  const samples = new Map<string, Sample[]>()
  for (const line of text.split('\n')) {
    const [, name, labelText = '', valueText = ''] = LINE.exec(line) ?? []
    if (name === undefined) continue
    const labels: Record<string, string> = {}
    for (const [, label = '', value = ''] of labelText.matchAll(LABEL))
      labels[label] = value.replaceAll(/\\(.)/g, (_, escaped: string) =>
        escaped === 'n' ? '\n' : escaped,
      )
    const sample = { labels, value: numberOf(valueText) }
    const known = samples.get(name)
    if (known === undefined) samples.set(name, [sample])
    else known.push(sample)
  }
  return samples
}

const numberOf = (text: string): number =>
  text === '+Inf' ? Infinity : text === '-Inf' ? -Infinity : Number(text)

/**
 * Returns the value of the first sample of a metric; `null` if the metric has no sample, or the value is NaN. The
 * labels do not matter.
 */
export function valueOf(samples: Samples | null, name: string): number | null {
  const value = samples?.get(name)?.[0]?.value
  return value === undefined || Number.isNaN(value) ? null : value
}
