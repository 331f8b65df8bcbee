import { describe, expect, it } from 'vitest'
import { RunFilter, tagOf } from './run-filter.ts'

describe('the filter of runs', () => {
  it('parsing a run filter from a query or from JSON returns arrays of values, and parsing the result again changes nothing', () => {
    const filter = RunFilter.parse({
      status: 'Failed',
      class: ['http_503', 'http_429'],
      inDoubt: 'true',
      tag: 'order:A:7',
    })
    expect(filter).toEqual({
      status: ['Failed'],
      class: ['http_503', 'http_429'],
      inDoubt: true,
      tag: ['order:A:7'],
    })
    expect(RunFilter.parse(JSON.parse(JSON.stringify(filter)))).toEqual(filter)
    expect(tagOf('order:A:7')).toEqual({ name: 'order', value: 'A:7' })
  })

  it.each([
    ['2026-01-01T00:00:00Z', '2026-01-01T00:00:00Z'],
    ['2026-01-01T16:00:00.25+16:00', '2026-01-01T00:00:00.25Z'],
    ['2026-01-01T00:00:00-23:59', '2026-01-01T23:59:00Z'],
    [`2026-01-01T00:00:00.${'9'.repeat(300)}Z`, '2026-01-01T00:00:00.999999Z'],
    ['2026-01-01T00:00:00.000Z', '2026-01-01T00:00:00.000Z'],
    ['0001-01-01T00:00:00Z', '0001-01-01T00:00:00Z'],
  ])(
    'the filter converts the time %s to UTC and keeps at most six fractional digits: %s',
    (time, inUtc) => {
      const filter = RunFilter.parse({ from: time, until: time, since: time })
      expect(filter).toEqual({ from: inUtc, until: inUtc, since: inUtc })
      expect(RunFilter.parse(filter)).toEqual(filter)
    },
  )

  it.each([
    ['status', 'Gone'],
    ['status', []],
    ['step', ''],
    ['class', Array.from({ length: 21 }, String)],
    ['version', 'a b'],
    ['realm', 'a b'],
    ['inDoubt', 'yes'],
    ['idPrefix', 'a\nb'],
    ['tag', 'without a colon'],
    ['tag', ':value'],
    ['tag', `name:${'x'.repeat(257)}`],
    ['from', 'yesterday'],
    ['until', '0000-01-01T00:00:00Z'],
    ['from', '0001-01-01T00:00:00+01:00'],
    ['since', '9999-12-31T23:59:59-00:01'],
    ['until', '2026-02-30T00:00:00Z'],
    ['from', '2026-01-01T00:00:00+24:00'],
    ['limit', '10'],
  ])('a filter whose %s is %j is rejected, and the error names the member', (name, value) => {
    const { error } = RunFilter.safeParse({ [name]: value })
    expect(error?.issues[0]).toSatisfy(
      ({ path, code }) => path[0] === name || code === 'unrecognized_keys',
    )
  })
})
