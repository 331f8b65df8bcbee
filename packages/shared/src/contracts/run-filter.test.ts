import { describe, expect, it } from 'vitest'
import { RunFilter, tagOf } from './run-filter.ts'

describe('the filter of runs', () => {
  it('a filter from a query or from JSON has arrays of values, and parsing it again changes nothing', () => {
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
    ['status', 'Gone'],
    ['status', []],
    ['step', ''],
    ['class', Array.from({ length: 21 }, String)],
    ['realm', 'a b'],
    ['inDoubt', 'yes'],
    ['idPrefix', 'a\nb'],
    ['tag', 'without a colon'],
    ['tag', ':value'],
    ['tag', `name:${'x'.repeat(257)}`],
    ['from', 'yesterday'],
    ['until', '0000-01-01T00:00:00Z'],
    ['limit', '10'],
  ])('a filter whose %s is %j is rejected, and the error names the member', (name, value) => {
    const { error } = RunFilter.safeParse({ [name]: value })
    expect(error?.issues[0]).toSatisfy(
      ({ path, code }) => path[0] === name || code === 'unrecognized_keys',
    )
  })
})
