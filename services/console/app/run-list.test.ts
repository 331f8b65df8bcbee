import { describe, expect, it } from 'vitest'
import type { RunRow, RunsView } from '../src/contracts/runs.ts'
import { newRuns, updatedPage, withChanges } from './run-list.ts'

const run = (second: number, more: Partial<RunRow> = {}): RunRow => ({
  Process: 'OrderProcess',
  TransactionID: `order-${second}`,
  ReplayID: 0,
  Status: 'Failed',
  StepName: 'order',
  Realm: null,
  ErrorClass: null,
  WaitingFor: null,
  InDoubt: false,
  Attempt: 1,
  NextAttemptAt: null,
  CreatedAt: `2026-11-24T03:00:${String(second).padStart(2, '0')}.000Z`,
  UpdatedAt: `2026-11-24T03:00:59.000Z`,
  Why: '',
  Cause: '',
  DataRejected: false,
  ...more,
})
const page = (Runs: RunRow[], Next: string | null): RunsView => ({
  Runs,
  Next,
  Companies: {},
  Processes: [],
})

describe('a list of runs while a person reads it', () => {
  it('a changed run is updated in its place in the list, and new runs are not inserted', () => {
    const listed = page([run(3), run(2), run(1)], null)
    const fresh = page([run(4), run(3), run(2, { Status: 'Running' }), run(1)], null)
    expect(updatedPage(listed, fresh, 'CreatedAt').Runs).toEqual([
      run(3),
      run(2, { Status: 'Running' }),
      run(1),
    ])
    expect(newRuns({ pages: [listed], pageParams: [null] }, fresh, 'CreatedAt')).toEqual([
      '["OrderProcess","order-4",0]',
    ])
  })

  it('a run that no longer matches the filter stays in its place in the list, and is marked', () => {
    const listed = page([run(3), run(2), run(1)], null)
    expect(updatedPage(listed, page([run(3), run(1)], null), 'CreatedAt').Runs).toEqual([
      run(3),
      { ...run(2), isGone: true },
      run(1),
    ])
  })

  it('if new runs move a row to the next page, the row is not marked as no longer matching the filter', () => {
    const listed = page([run(3), run(2), run(1)], 'cursor')
    const fresh = page([run(5), run(4), run(3)], 'other cursor')
    const updated = updatedPage(listed, fresh, 'CreatedAt')
    expect(updated.Runs).toEqual([run(3), run(2), run(1)])
    expect(updated.Next).toBe('cursor')
  })

  it('older runs that move up in the list because other runs no longer match the filter are not counted as new', () => {
    const listed = page([run(5), run(4)], 'cursor')
    const fresh = page([run(5), run(3)], 'cursor')
    expect(newRuns({ pages: [listed], pageParams: [null] }, fresh, 'CreatedAt')).toEqual([])
    expect(
      newRuns({ pages: [page([], null)], pageParams: [null] }, fresh, 'CreatedAt'),
    ).toHaveLength(2)
  })

  it('in a list ordered by the last change, the row of a changed run stays in place and shows the new state', () => {
    const changed = run(1, { Status: 'Running', UpdatedAt: '2026-11-24T03:05:00.000Z' })
    const old = (second: number) => run(second, { UpdatedAt: `2026-11-24T03:00:0${second}.000Z` })
    const second = page([old(2), old(1)], null)
    const freshFirst = page([changed, old(4), old(3)], 'cursor')
    expect(withChanges(second, freshFirst).Runs).toEqual([old(2), changed])
    expect(withChanges(page([old(5)], null), freshFirst).Runs).toEqual([old(5)])
    const listed = { pages: [page([old(4), old(3)], 'cursor'), second], pageParams: [null, 'c'] }
    expect(newRuns(listed, freshFirst, 'UpdatedAt')).toEqual([])
    const queued = run(9, { UpdatedAt: '2026-11-24T03:06:00.000Z' })
    expect(newRuns(listed, page([queued, changed], 'cursor'), 'UpdatedAt')).toEqual([
      '["OrderProcess","order-9",0]',
    ])
  })
})
