import { describe, expect, it } from 'vitest'
import { isKept, type Round, roundTable } from './verdict.ts'

const round: Round = {
  name: 'redis-killed',
  orders: 120,
  lost: [],
  doubled: [],
  stuck: [],
  companies: 60,
  lockedOut: [],
  violations: 0,
  tokenReuses: 0,
  calls: 1_000,
  failedCalls: 40,
  unservedCalls: 2,
  failures: { 'order 503': 40 },
  recoverySeconds: 6.25,
  error: null,
}

describe('the verdict on a round', () => {
  it('the verdict on a round is `kept` if no order and no company was lost, even if calls failed', () => {
    expect(isKept(round)).toBe(true)
  })

  it.each([
    { lost: ['1'] },
    { doubled: ['1'] },
    { stuck: ['1'] },
    { lockedOut: ['a'] },
    { violations: 1 },
    { violations: null },
    { error: 'the fault could not be repaired' },
  ])('a round with %j has the verdict `broken`', (part) => {
    expect(isKept({ ...round, ...part })).toBe(false)
  })
})

describe('the table of rounds', () => {
  it('the table of rounds has one line for each round', () => {
    const [header, line, ...more] = roundTable([round])
    expect(header).toMatch(/^VERDICT +ROUND +ORDERS +LOST +DOUBLED +STUCK +COMPANIES +LOCKED OUT/)
    expect(line).toMatch(/^kept +redis-killed +120 +0 +0 +0 +60 +0 +0 +1000 +40 +2 +6\.3 s$/)
    expect(more).toEqual([])
  })

  it('the table of rounds lists at most five lost orders below a round with the verdict `BROKEN`', () => {
    const lost = ['1', '2', '3', '4', '5', '6', '7']
    const lines = roundTable([{ ...round, lost, error: 'no failover' }, round])
    expect(lines[1]).toMatch(/^BROKEN /)
    expect(lines.slice(2, 4).map((line) => line.trim())).toEqual([
      'no failover',
      'lost: 1, 2, 3, 4, 5, and 2 more',
    ])
    expect(lines[4]).toMatch(/^kept /)
  })
})
