/** The address of the page that is shown. Links change it without loading the page again. */
import { useSyncExternalStore } from 'react'

const listeners = new Set<() => void>()

function subscribe(listener: () => void): () => void {
  listeners.add(listener)
  window.addEventListener('popstate', listener)
  return () => {
    listeners.delete(listener)
    window.removeEventListener('popstate', listener)
  }
}

export const usePath = (): string => useSyncExternalStore(subscribe, () => location.pathname)

/** Shows another page, and moves the focus to its heading, so that screen readers announce it. */
export function goTo(path: string): void {
  history.pushState(null, '', path)
  for (const listener of listeners) listener()
  window.scrollTo(0, 0)
  requestAnimationFrame(() => document.querySelector<HTMLElement>('h1')?.focus())
}
