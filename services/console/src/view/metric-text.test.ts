import { describe, expect, it } from 'vitest'
import { parseMetrics, valueOf } from './metric-text.ts'

describe("the parser of Prometheus' text format", () => {
  it('the parser of the Prometheus text format reads labels, escapes, timestamps and special values', () => {
    const samples = parseMetrics(
      [
        '# HELP a a text',
        '# TYPE a gauge',
        'a{x="1",y="say \\"hi\\"\\\\ \\n"} 2 1700000000000',
        'a 1e3',
        'b NaN',
        'c{le="+Inf"} +Inf',
        'this is not a sample',
      ].join('\n'),
    )
    expect(samples.get('a')).toEqual([
      { labels: { x: '1', y: 'say "hi"\\ \n' }, value: 2 },
      { labels: {}, value: 1_000 },
    ])
    expect(valueOf(samples, 'b')).toBeNull()
    expect(valueOf(samples, 'none')).toBeNull()
    expect(valueOf(samples, 'c')).toBe(Infinity)
  })
})
