/** The address of the shown page. Links change it without loading the page again. */
import { createStore } from './store.ts'

/** The address of the page. The hooks read its parts from `location`. */
const address = createStore('')
const changed = (): void => address.set(location.href)

/** Follows the buttons *Back* and *Forward* of the browser. Called once, before any page is shown. */
export function followAddress(): void {
  changed()
  window.addEventListener('popstate', changed)
}

export const usePath = (): string => address.use(() => location.pathname)

/** Returns the query of the address, such as `?status=Failed`. */
export const useQueryText = (): string => address.use(() => location.search)

/** Returns the fragment of the address without `#`, such as `runsfailed`. */
export const useFragment = (): string => address.use(() => location.hash.slice(1))

/**
 * Returns the parameters of a path in the form of `pattern`, such as `/runs/:process/:id`. Returns `null` for a path in
 * another form or with an invalid encoding.
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

/** Replaces the query of the address. The page, the fragment and the focus stay the same. */
export function setQuery(query: URLSearchParams): void {
  const text = query.toString()
  history.replaceState(
    null,
    '',
    location.pathname + (text === '' ? '' : `?${text}`) + location.hash,
  )
  changed()
}

/** Puts a fragment into the address. The page is not scrolled. */
export function showFragment(name: string): void {
  history.replaceState(null, '', `${location.pathname}${location.search}#${name}`)
  changed()
}

let isHeadingDue = false

/** Moves the focus to the heading of a page that was just opened, so that screen readers announce it. */
export function focusHeading(): void {
  const heading = document.querySelector<HTMLElement>('h1')
  // The program of the page may still be loading. In this case, the page calls this function when the page is shown.
  if (!isHeadingDue || heading === null) return
  isHeadingDue = false
  heading.focus()
}

/**
 * Shows another page. If the address has a fragment, shows that part of the page. Otherwise the heading gets the focus,
 * unless `movesFocus` is false because no control of the page before had the focus.
 */
export function goTo(to: string, movesFocus = true): void {
  history.pushState(null, '', to)
  changed()
  if (location.hash !== '') return
  window.scrollTo(0, 0)
  isHeadingDue = movesFocus
  requestAnimationFrame(focusHeading)
}
