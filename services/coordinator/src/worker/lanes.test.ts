import { BUSY_LANES, HIGH_LANE } from '@integration-host/shared/contracts/topology'
import { describe, expect, it } from 'vitest'
import { createLanes } from './lanes.ts'

const run = (TransactionID: string, Realm: string | null = '42') => ({
  Process: 'P',
  TransactionID,
  ReplayID: 0,
  Realm,
})

function lanesOf(stepNames: readonly [string, ...string[]] = ['first']) {
  const clock = { ms: 0, now: () => clock.ms }
  const lanes = createLanes({ processes: new Map([['P', { stepNames }]]), prefetch: 3, clock })
  const publish = (count: number, realm?: string | null): void => {
    for (let n = 0; n < count; n += 1) lanes.published(run(`${realm}-${n}`, realm))
  }
  return { clock, lanes, publish }
}

describe('lanes', () => {
  it('a company goes to a lane while it has more messages than a replica processes at once, and other companies do not', () => {
    const { lanes, publish } = lanesOf()
    publish(2, '42')
    expect(lanes.of(run('next'))).toBeNull()
    publish(3, '42')
    expect(BUSY_LANES).toContain(lanes.of(run('next')))
    expect(lanes.of(run('other', '43'))).toBeNull()
    lanes.left(run('42-0'))
    expect(lanes.of(run('next'))).toBeNull()
  })

  it('a company always has the same lane, and four lanes are used', () => {
    const { lanes, publish } = lanesOf()
    const used = new Set<string | null>()
    for (let realm = 0; realm < 40; realm += 1) {
      publish(3, `${realm}`)
      const lane = lanes.of(run('a', `${realm}`))
      expect(lanes.of(run('b', `${realm}`))).toBe(lane)
      used.add(lane)
    }
    expect(used).toEqual(new Set(BUSY_LANES))
  })

  it('a message that is published again counts once', () => {
    const { lanes, publish } = lanesOf()
    publish(2, '42')
    publish(2, '42')
    expect(lanes.of(run('next'))).toBeNull()
  })

  it('a count that has not changed for 15 seconds is dropped, because the transitions of other replicas may be lost', () => {
    const { clock, lanes, publish } = lanesOf()
    publish(3, '42')
    clock.ms = 14_999
    expect(lanes.of(run('next'))).not.toBeNull()
    clock.ms = 15_000
    expect(lanes.of(run('next'))).toBeNull()
    // The late report of a dropped message does not change the new count.
    publish(3, '43')
    lanes.left(run('42-0'))
    expect(lanes.of(run('next', '43'))).not.toBeNull()
  })

  it('a message counts for at most 10 minutes', () => {
    const { clock, lanes, publish } = lanesOf()
    publish(2, '42')
    for (; clock.ms <= 600_000; clock.ms += 10_000) lanes.published(run('again'))
    expect(lanes.of(run('next'))).toBeNull()
  })

  it('a run with high priority has a lane of its own, unless a place of the process has its name', () => {
    const { lanes, publish } = lanesOf()
    publish(5, '42')
    const high = { ...run('next'), Priority: 'high' as const }
    expect(lanes.of(high)).toBe(HIGH_LANE)
    expect(lanes.of({ ...high, Realm: null })).toBe(HIGH_LANE)
    expect(lanesOf(['high']).lanes.of(high)).toBeNull()
  })

  it('runs without a company, and processes with a place of the name of a lane, have no lanes', () => {
    const { lanes, publish } = lanesOf()
    publish(5, null)
    expect(lanes.of(run('next', null))).toBeNull()
    const named = lanesOf(['first', 'busy'])
    named.publish(5, '42')
    expect(named.lanes.of(run('next'))).toBeNull()
  })
})
