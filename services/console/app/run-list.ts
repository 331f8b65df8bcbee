/**
 * The list of runs. Rows must not move while a person reads them. A row changes in place, even if its run no longer
 * matches the filter. New runs are only counted, and not shown until the person requests them.
 */
import { useInfiniteQuery, useQueries, useQueryClient } from '@tanstack/react-query'
import type { InfiniteData } from '@tanstack/react-query'
import { useCallback, useMemo } from 'react'
import type { RunRow, RunsView } from '../src/contracts/runs.ts'
import { call } from './api.ts'

export interface ListedRun extends RunRow {
  /** Whether the run has changed and no longer matches the filter. */
  readonly isGone?: boolean
}
interface ListedPage extends Omit<RunsView, 'Runs'> {
  readonly Runs: readonly ListedRun[]
}
type Listed = InfiniteData<ListedPage, string | null>

/** The indexes of the rendered rows. */
export interface VisibleRows {
  readonly first: number
  readonly last: number
}

export const keyOf = ({ Process, TransactionID, ReplayID }: RunRow): string =>
  JSON.stringify([Process, TransactionID, ReplayID])

/** The time by which the list is ordered. */
export type RunOrder = 'CreatedAt' | 'UpdatedAt'

const oldest = (runs: readonly RunRow[], order: RunOrder): string | undefined =>
  runs.map((run) => run[order]).toSorted()[0]

/** Returns a page with the current state of its rows, in the same places. `fresh` is the same page, read again. */
export function updatedPage(page: ListedPage, fresh: RunsView, order: RunOrder): ListedPage {
  const now = new Map(fresh.Runs.map((run) => [keyOf(run), run]))
  const last = oldest(fresh.Runs, order)
  const runs = page.Runs.map((run): ListedRun => {
    const found = now.get(keyOf(run))
    if (found !== undefined) return found
    // A page has a limited size. If new runs begin the fresh page, it does not reach the last rows of the old page.
    const isCovered = fresh.Next === null || last === undefined || run[order] > last
    return isCovered ? { ...run, isGone: true } : run
  })
  return { ...page, ...fresh, Next: page.Next, Runs: runs }
}

/**
 * Returns a page in which each run that is also on `fresh` has the state from `fresh`. `fresh` may be another page of
 * the list: in a list that is ordered by the last change, a changed run moves to the first page.
 */
export function withChanges(page: ListedPage, fresh: RunsView): ListedPage {
  const now = new Map(fresh.Runs.map((run) => [keyOf(run), run]))
  return page.Runs.some((run) => now.has(keyOf(run)))
    ? { ...page, Runs: page.Runs.map((run) => now.get(keyOf(run)) ?? run) }
    : page
}

/**
 * Returns the keys of the runs on a fresh page that are new in the list. A run that the list does not have is new if
 * its place is among the loaded rows; otherwise the run is on a page that is not loaded yet.
 */
export function newRuns(listed: Listed, fresh: RunsView, order: RunOrder): readonly string[] {
  const known = new Set(listed.pages.flatMap(({ Runs }) => Runs.map(keyOf)))
  const end = listed.pages.at(-1)
  const last = oldest(end?.Runs ?? [], order)
  const isCovered = (run: RunRow): boolean =>
    end?.Next === null || last === undefined || run[order] > last
  return fresh.Runs.filter((run) => !known.has(keyOf(run)) && isCovered(run)).map(keyOf)
}

async function readPage(text: string, cursor: string | null): Promise<RunsView> {
  const query = new URLSearchParams(text)
  if (cursor !== null) query.set('cursor', cursor)
  return call<RunsView>('GET', `/runs?${query}`)
}

/** `text` is the query of the address. The pages that contain the visible rows are read again when runs change. */
export function useRunList(text: string, { first, last }: VisibleRows) {
  const queries = useQueryClient()
  const listKey = ['run-pages', text]
  const order = new URLSearchParams(text).get('order') === 'updated' ? 'UpdatedAt' : 'CreatedAt'
  const list = useInfiniteQuery({
    queryKey: listKey,
    queryFn: ({ pageParam }): Promise<ListedPage> => readPage(text, pageParam),
    initialPageParam: null as string | null,
    getNextPageParam: ({ Next }) => Next,
    gcTime: 0,
  })
  const pages = list.data?.pages ?? []
  const shown = new Set([0])
  let begin = 0
  for (const [index, { Runs }] of pages.entries()) {
    if (begin <= last && begin + Runs.length > first) shown.add(index)
    begin += Runs.length
  }
  const fresh = useQueries({
    queries: [...shown].map((index) => ({
      queryKey: ['runs', text, index],
      enabled: list.isSuccess,
      gcTime: 0,
      queryFn: async (): Promise<readonly string[]> => {
        const cursor = queries.getQueryData<Listed>(listKey)?.pageParams[index] ?? null
        const page = await readPage(text, cursor)
        const listed = queries.getQueryData<Listed>(listKey)
        if (listed === undefined) return []
        queries.setQueryData<Listed>(listKey, {
          ...listed,
          pages: listed.pages.map((one, at) =>
            at === index ? updatedPage(one, page, order) : withChanges(one, page),
          ),
        })
        return newRuns(listed, page, order)
      },
    })),
  })
  const showNew = useCallback(async (): Promise<void> => {
    const page: ListedPage = await readPage(text, null)
    queries.setQueryData<Listed>(['run-pages', text], { pages: [page], pageParams: [null] })
  }, [queries, text])
  const { data } = list
  // These values are computed only when the list changes, because the component renders with every animation frame
  // while a person scrolls.
  const { rows, known, companies } = useMemo(() => {
    const all = (data?.pages ?? []).flatMap(({ Runs }) => Runs)
    return {
      rows: all,
      known: new Set(all.map(keyOf)),
      // The names are in a map. In an object, a company with the id `constructor` would seem to have a name.
      companies: new Map((data?.pages ?? []).flatMap(({ Companies }) => Object.entries(Companies))),
    }
  }, [data])
  const unlisted = new Set(fresh.flatMap((one) => one.data ?? []).filter((key) => !known.has(key)))
  return {
    rows,
    view: pages[0],
    companies,
    newCount: unlisted.size,
    hasMore: list.hasNextPage,
    isReading: list.isFetchingNextPage,
    hasFailedToReadMore: list.isFetchNextPageError,
    isPending: list.isPending,
    error: list.error ?? fresh.find(({ error }) => error !== null)?.error ?? null,
    readMore: () => void (list.isFetchingNextPage || list.fetchNextPage()),
    /** Shows the list again from its beginning, with the new runs. */
    showNew,
  }
}
