import { describe, expect, it } from 'vitest'
import { limitedTargets } from './process-texts.ts'

const limits = { PerSecond: 5, Concurrent: null }

describe('the targets on the page Limits', () => {
  it('a target that several processes share is listed once, and others once for each process', () => {
    const shared = { Name: 'erp', Shared: true, ...limits }
    const own = { Name: 'erp', Shared: false, ...limits }
    const rows = limitedTargets([
      { Process: 'A', Targets: [shared, { ...own, Name: 'bank' }] },
      { Process: 'B', Targets: [shared] },
      { Process: 'C', Targets: [own] },
      { Process: 'D' },
    ])
    expect(rows.map(({ Name, processes }) => [Name, processes])).toEqual([
      ['bank', ['A']],
      ['erp', ['A', 'B']],
      ['erp', ['C']],
    ])
  })
})
