/**
 * Shows that something needs a person, even if the tab is in the background: in the title and the icon of the tab, and
 * as desktop notices.
 */
import { useEffect, useRef } from 'react'
import type { ConditionView } from '../src/contracts/now.ts'
import { goTo } from './router.ts'
import { useSettings } from './settings.ts'
import { visible } from './visible.ts'
import { createStore } from './store.ts'

/**
 * Sets the title of the tab to the title that the page has given itself. If the page has none, the title is the name of
 * the page with the number of conditions that need a person.
 */
export function useTabTitle(name: string, urgent: number): void {
  const own = useOwnTitle()
  useEffect(() => {
    document.title = `${own ?? (urgent > 0 ? `(${urgent}) ${name}` : name)} · Console`
  }, [own, urgent, name])
  useEffect(() => () => void (document.title = 'Console'), [])
}

const END = '%3C/svg%3E'
const DOT = "%3Ccircle cx='12' cy='4' r='3.5' fill='%23d92d20' stroke='%23fff'/%3E"

/** Adds a dot to the icon of the tab while `isCritical` is true. */
export function useTabIcon(isCritical: boolean): void {
  useEffect(() => {
    if (!isCritical) return undefined
    const link = document.querySelector<HTMLLinkElement>('link[rel=icon]')
    const calm = link?.href ?? ''
    if (link !== null) link.href = calm.replace(END, DOT + END)
    return () => {
      if (link !== null) link.href = calm
    }
  }, [isCritical])
}

/**
 * Shows a desktop notice for each critical condition that begins while the page is open, if the person has switched on
 * desktop notices in the settings. All tabs give the notice of a condition the same tag, so that the browser shows the
 * notice once.
 */
export function useDesktopNotices(conditions: readonly ConditionView[] | undefined): void {
  const { notices } = useSettings()
  const knownRef = useRef<ReadonlySet<string> | null>(null)
  useEffect(() => {
    if (conditions === undefined) return
    const critical = conditions.filter(({ Severity }) => Severity === 'critical')
    const known = knownRef.current
    knownRef.current = new Set(critical.map(({ Key }) => Key))
    // Browsers offer notifications only to pages on https or loopback addresses.
    if (known === null || notices === 'off' || typeof Notification === 'undefined') return
    if (Notification.permission !== 'granted') return
    for (const { Key, Title, Detail } of critical) {
      if (known.has(Key)) continue
      const notice = new Notification(visible(Title), { body: visible(Detail), tag: Key })
      notice.addEventListener('click', () => {
        window.focus()
        goTo('/')
        notice.close()
      })
    }
  }, [conditions, notices])
}

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

const useOwnTitle = (): string | null => own.use((title) => title)
