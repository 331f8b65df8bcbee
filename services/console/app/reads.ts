/** The reads of the pages. What a page has read stays while it is read again. */
import {
  type QueryKey,
  useInfiniteQuery,
  useQuery,
  type UseQueryOptions,
} from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import { call } from './api.ts'

/** Reads a path of the console's API. */
export const useRead = <View>(
  queryKey: QueryKey,
  path: string,
  options: Omit<UseQueryOptions<View>, 'queryKey' | 'queryFn'> = {},
) => useQuery<View>({ ...options, queryKey, queryFn: () => call<View>('GET', path) })

/** Reads the pages of a list. `text` is the query of the first page, and `nextOf` returns the cursor of the next one. */
export const useReadPages = <View>(
  path: string,
  text: string,
  nextOf: (view: View) => string | null,
  enabled = true,
) =>
  useInfiniteQuery({
    queryKey: [...path.split('/').slice(1), text],
    queryFn: ({ pageParam }) => {
      const query = new URLSearchParams(text)
      if (pageParam !== null) query.set('cursor', pageParam)
      return call<View>('GET', query.size === 0 ? path : `${path}?${query}`)
    },
    initialPageParam: null as string | null,
    getNextPageParam: nextOf,
    enabled,
  })

/** The pause in typing, in milliseconds, after which the text is used. */
const PAUSE_MS = 150

/**
 * Returns the text, with a delay: after a change, returns the previous text until there has been no
 * further change for a moment.
 */
export function usePaused(text: string): string {
  const [paused, setPaused] = useState(text)
  useEffect(() => {
    const timer = setTimeout(() => setPaused(text), PAUSE_MS)
    return () => clearTimeout(timer)
  }, [text])
  return paused
}
