/**
 * Counts the runs that an action on many runs would change. The coordinator counts them without changing
 * anything.
 */
import { useEffect } from 'react'
import type { BulkAction, BulkView } from '../src/contracts/bulk.ts'
import { call } from './api.ts'

/** The runs of an action on many runs: those that a person has selected, or all that match a filter. */
export type BulkScope = { readonly process: string } & (
  | { readonly ids: readonly string[] }
  | { readonly filter: BulkFilter }
)
export type BulkFilter = Readonly<Record<string, unknown>>

export type BulkCount = Pick<BulkView, 'ID' | 'Status' | 'Filter' | 'Done' | 'Skipped'> & {
  readonly Failed: number
}

const POLL_MS = 300

/** Returns the runs of a scope as members of the body of `POST /api/bulk`. */
export const scopeBody = (scope: BulkScope) => ({
  Process: scope.process,
  ...('ids' in scope ? { Ids: scope.ids } : { Filter: scope.filter }),
})

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

/** Counts the runs of a scope. Calls `onCount` with each intermediate count and with the final one. */
export async function countRuns(
  action: BulkAction,
  scope: BulkScope,
  signal: AbortSignal,
  onCount: (count: BulkCount) => void,
): Promise<void> {
  const body = { Action: action, ...scopeBody(scope), DryRun: true }
  let count = await call<BulkCount>('POST', '/bulk', body)
  const path = `/bulk/${encodeURIComponent(count.ID)}`
  while (count.Status === 'Running') {
    if (signal.aborted) {
      // No component needs the result any more, so the count is stopped.
      await call('POST', `${path}/stop`, { Reason: 'the count is not needed' }).catch(() => {})
      return
    }
    onCount(count)
    await pause(POLL_MS)
    count = await call<BulkCount>('GET', path)
  }
  if (!signal.aborted) onCount(count)
}

export interface CountState {
  readonly count: BulkCount | null
  readonly error: Error | null
}

/**
 * Counts the runs of an action and a scope while the component is shown. The runs are counted once for each combination
 * of action and scope.
 */
export function useCount(
  action: BulkAction,
  scope: BulkScope,
  onChange: (state: CountState) => void,
): void {
  const text = JSON.stringify(scope)
  useEffect(() => {
    const closing = new AbortController()
    onChange({ count: null, error: null })
    countRuns(action, JSON.parse(text) as BulkScope, closing.signal, (count) =>
      onChange({ count, error: null }),
    ).catch((error: unknown) => {
      if (!closing.signal.aborted) onChange({ count: null, error: error as Error })
    })
    return () => closing.abort()
  }, [action, text, onChange])
}

/** The members of a filter, from the query of the list of runs. */
export function filterOf(query: URLSearchParams): BulkFilter {
  const names = [...new Set(query.keys())].filter((name) => name !== 'process' && name !== 'order')
  return Object.fromEntries(
    names.map((name) => {
      const values = query.getAll(name)
      return [name, values.length === 1 ? values[0] : values]
    }),
  )
}
