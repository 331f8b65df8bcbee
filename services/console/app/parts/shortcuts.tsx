/**
 * The keyboard shortcuts of the console. Shortcuts without a modifier key can be switched off in the settings (WCAG
 * 2.1.4).
 */
import { useEffect, useRef } from 'react'
import { currentSettings, useSettings } from '../settings.ts'
import { Link } from './link.tsx'
import { goTo } from '../router.ts'
import { Fact } from './elements.tsx'

/** The second key after `g`, and the page that it opens. */
const PAGE_KEYS = {
  n: { path: '/', name: 'Now' },
  r: { path: '/runs', name: 'Runs' },
  c: { path: '/companies', name: 'Companies' },
  p: { path: '/processes', name: 'Processes' },
  h: { path: '/services', name: 'Health' },
} as const
const KEYS = [
  { keys: ['Ctrl', 'K'], text: 'Search' },
  { keys: ['/'], text: 'Search' },
  ...Object.entries(PAGE_KEYS).map(([key, { name }]) => ({ keys: ['g', key], text: name })),
  { keys: ['?'], text: 'These keys' },
  { keys: ['Esc'], text: 'Close' },
]

/** The second key must follow within this time. */
const SECOND_KEY_MS = 1_500

export interface ShortcutHandlers {
  readonly onSearch: () => void
  readonly onKeys: () => void
}

/** While the component is shown, a key press calls the handler of the key or opens the page of the key. */
export function useShortcuts({ onSearch, onKeys }: ShortcutHandlers): void {
  useEffect(() => {
    let firstKeyAt = -Infinity
    function onKey(event: KeyboardEvent): void {
      if (event.defaultPrevented || event.isComposing) return
      if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === 'k') {
        event.preventDefault()
        if (document.querySelector('dialog[open]') === null) onSearch()
        return
      }
      if (currentSettings().shortcuts === 'off' || !isForPage(event)) return
      const isSecond = event.timeStamp - firstKeyAt < SECOND_KEY_MS
      firstKeyAt = -Infinity
      const page = PAGE_KEYS[event.key as keyof typeof PAGE_KEYS] as { path: string } | undefined
      if (isSecond && page !== undefined) goTo(page.path)
      else if (event.key === 'g') firstKeyAt = event.timeStamp
      else if (event.key === '/') onSearch()
      else if (event.key === '?') onKeys()
      else return
      event.preventDefault()
    }
    window.addEventListener('keydown', onKey)
    return () => window.removeEventListener('keydown', onKey)
  }, [onSearch, onKeys])
}

/**
 * Returns whether a key press can be a shortcut. A key press that is meant for a field, a menu, a dialog or the browser
 * cannot.
 */
function isForPage(event: KeyboardEvent): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey) return false
  if (document.querySelector('dialog[open], [popover]:popover-open') !== null) return false
  const target = event.target as HTMLElement | null
  return target?.closest('input, textarea, select, [contenteditable]') === null
}

/** Lists the keyboard shortcuts of the console. */
export function KeysDialog({ onClose }: { readonly onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null)
  const { shortcuts } = useSettings()
  useEffect(() => dialog.current?.showModal(), [])
  return (
    <dialog ref={dialog} aria-labelledby="keys" onClose={onClose}>
      <h2 id="keys">Keys</h2>
      <dl className="keys">
        {KEYS.map(({ keys, text }) => (
          <Fact
            key={keys.join(' ')}
            name={
              <>
                {keys.map((key) => (
                  <kbd key={key}>{key}</kbd>
                ))}
              </>
            }
          >
            {text}
          </Fact>
        ))}
      </dl>
      <p className="muted">
        {shortcuts === 'off'
          ? 'Keys without Ctrl are switched off in the '
          : 'Keys without Ctrl can be switched off in the '}
        <Link to="/settings">settings</Link>.
      </p>
      <form method="dialog" className="buttons">
        <button type="submit">Close</button>
      </form>
    </dialog>
  )
}
