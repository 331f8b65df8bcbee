import { describe, expect, it } from 'vitest'
import type { Round } from './cluster/verdict.ts'
import type { Fault } from './cluster/faults.ts'
import { faults } from './cluster/faults.ts'
import { parseSeeds, planClusters } from './cluster/plan.ts'
import { summaryTable } from './cluster/summary.ts'

describe('the seeds of a cluster test', () => {
  it.each([
    ['7', [7]],
    ['1-3', [1, 2, 3]],
    ['5-5', [5]],
  ])('parseSeeds() converts the argument %s to the seeds %j', (text, seeds) => {
    expect(parseSeeds(text)).toEqual(seeds)
  })

  it.each(['', '-1', '3-1', '1-', '1-101', '1-2-3', '1.5', ' 1', '1000000000', '١'])(
    'parseSeeds() rejects the argument %j',
    (text) => {
      expect(parseSeeds(text)).toBeNull()
    },
  )
})

describe('the plan of a cluster test', () => {
  const fault = (name: string, startsOn?: Fault['startsOn']): Fault => ({
    name,
    does: '',
    ...(startsOn && { startsOn }),
    cause: () => Promise.resolve(),
  })
  const plan = (chosen: readonly Fault[], seeds: readonly number[]) =>
    planClusters(chosen, seeds).map((rounds) =>
      rounds.map((round) => `${round.fault.name} ${round.seed}`),
    )

  it('the plan of a cluster test causes every fault with every seed, and uses one cluster for all of them', () => {
    expect(plan([fault('a'), fault('b')], [1, 2])).toEqual([['a 1', 'b 1', 'a 2', 'b 2']])
  })

  it('the plan of a cluster test starts a new cluster for each upgrade, and causes the other faults after the upgrade', () => {
    expect(plan([fault('a'), fault('upgrade', 'first release')], [1, 2])).toEqual([
      ['upgrade 1', 'a 1'],
      ['upgrade 2', 'a 2'],
    ])
  })

  it('the plan of a cluster test contains ten faults by default', () => {
    expect(faults.filter(({ isDefault }) => isDefault)).toHaveLength(10)
  })
})

describe('the summary of a cluster test', () => {
  const round: Round = {
    name: 'redis-killed',
    orders: 1_000,
    lost: [],
    doubled: [],
    stuck: [],
    companies: 60,
    lockedOut: ['c1'],
    violations: 0,
    tokenReuses: 0,
    calls: 2_000,
    failedCalls: 10,
    unservedCalls: 0,
    failures: {},
    recoverySeconds: 9.04,
    error: null,
  }

  it('the summary of a cluster test adds up the rounds of each fault, and shows the shortest and the longest recovery time', () => {
    const other = { ...round, lockedOut: [], recoverySeconds: 7 }
    expect(summaryTable([round, { ...other, name: 'a' }, other]).slice(2)).toEqual([
      '| `redis-killed` | 2 | 2,000 | 0 | 0 | 0 | 1 | 20 of 4,000 | 7.0 to 9.0 s |',
      '| `a` | 1 | 1,000 | 0 | 0 | 0 | 0 | 10 of 2,000 | 7.0 s |',
    ])
  })
})
