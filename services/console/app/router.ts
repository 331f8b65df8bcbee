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

/** Returns the query of the address, such as `?status=Failed`. */
export const useQueryText = (): string => useSyncExternalStore(subscribe, () => location.search)

/**
 * Returns the parameters of a path that has the form of `pattern`, such as `/runs/:process/:id`; `null` for another path
 * or one that is not properly encoded.
 */
export function match(pattern: string, path: string): Readonly<Record<string, string>> | null {
  const names = pattern.split('/')
  const values = path.split('/')
  if (names.length !== values.length) return null
  const parameters: Record<string, string> = {}
  for (const [index, name] of names.entries()) {
    const value = values[index] ?? ''
    if (!name.startsWith(':')) {
      if (name !== value) return null
      continue
    }
    try {
      parameters[name.slice(1)] = decodeURIComponent(value)
    } catch {
      return null
    }
  }
  return parameters
}

/** Returns the address of the page of a run; of the latest one without `run`. */
export const runPage = (process: string, id: string, run?: number): string =>
  `/runs/${encodeURIComponent(process)}/${encodeURIComponent(id)}${run === undefined ? '' : `?run=${run}`}`

/** Returns the address of the page of a company. */
export const companyPage = (realm: string): string => `/companies/${encodeURIComponent(realm)}`

/** Replaces the query of the address. The page and the focus stay. */
export function setQuery(query: URLSearchParams): void {
  const text = query.toString()
  history.replaceState(null, '', location.pathname + (text === '' ? '' : `?${text}`))
  for (const listener of listeners) listener()
}

/** Shows another page, and moves the focus to its heading, so that screen readers announce it. */
export function goTo(path: string): void {
  history.pushState(null, '', path)
  for (const listener of listeners) listener()
  window.scrollTo(0, 0)
  requestAnimationFrame(() => document.querySelector<HTMLElement>('h1')?.focus())
}
