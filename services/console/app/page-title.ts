/** The title that a page sets for itself. It replaces the name that the page has in the navigation. */
import { useEffect } from 'react'
import { createStore } from './store.ts'

const own = createStore<string | null>(null)

/**
 * Sets the title of the page while the component is shown. With `null`, the title is the name of the page in the
 * navigation.
 */
export function usePageTitle(title: string | null): void {
  useEffect(() => {
    own.set(title)
    return () => own.set(null)
  }, [title])
}

export const useOwnTitle = (): string | null => own.use((title) => title)
