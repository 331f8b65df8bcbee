/** The title that a page sets for itself. It replaces the name that the page has in the navigation. */
import { useEffect, useSyncExternalStore } from 'react'

let own: string | null = null
const listeners = new Set<() => void>()

function set(title: string | null): void {
  own = title
  for (const listener of listeners) listener()
}

/**
 * Sets the title of the page while the component is shown. With `null`, the title is the name of the page in the
 * navigation.
 */
export function usePageTitle(title: string | null): void {
  useEffect(() => {
    set(title)
    return () => set(null)
  }, [title])
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener)
  return () => void listeners.delete(listener)
}

export const useOwnTitle = (): string | null => useSyncExternalStore(subscribe, () => own)
