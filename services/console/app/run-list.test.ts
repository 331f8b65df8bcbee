import { describe, expect, it } from 'vitest'
import type { RunRow, RunsView } from '../src/contracts/runs.ts'
import { newRuns, updatedPage } from './run-list.ts'

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
  ...more,
})
const page = (Runs: RunRow[], Next: string | null): RunsView => ({
  Runs,
  Next,
  Companies: {},
  Processes: [],
  Counts: null,
})

describe('a list of runs while a person reads it', () => {
  it('a changed run is updated in its place in the list, and new runs are not inserted', () => {
    const listed = page([run(3), run(2), run(1)], null)
    const fresh = page([run(4), run(3), run(2, { Status: 'Running' }), run(1)], null)
    expect(updatedPage(listed, fresh).Runs).toEqual([run(3), run(2, { Status: 'Running' }), run(1)])
    expect(newRuns({ pages: [listed], pageParams: [null] }, fresh)).toEqual([
      '["OrderProcess","order-4",0]',
    ])
  })

  it('a run that no longer matches the filter stays in its place in the list, and is marked', () => {
    const listed = page([run(3), run(2), run(1)], null)
    expect(updatedPage(listed, page([run(3), run(1)], null)).Runs).toEqual([
      run(3),
      { ...run(2), isGone: true },
      run(1),
    ])
  })

  it('rows that are missing on the fresh page are not marked if new runs have moved these rows to the next page', () => {
    const listed = page([run(3), run(2), run(1)], 'cursor')
    const fresh = page([run(5), run(4), run(3)], 'other cursor')
    const updated = updatedPage(listed, fresh)
    expect(updated.Runs).toEqual([run(3), run(2), run(1)])
    expect(updated.Next).toBe('cursor')
  })

  it('older runs that move up in the list because other runs no longer match the filter are not counted as new', () => {
    const listed = page([run(5), run(4)], 'cursor')
    const fresh = page([run(5), run(3)], 'cursor')
    expect(newRuns({ pages: [listed], pageParams: [null] }, fresh)).toEqual([])
    expect(newRuns({ pages: [page([], null)], pageParams: [null] }, fresh)).toHaveLength(2)
  })
})
