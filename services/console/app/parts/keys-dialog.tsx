import { useEffect, useRef } from 'react'
import { PAGE_KEYS } from '../shortcuts.ts'
import { useSettings } from '../settings.ts'
import { Link } from './link.tsx'

const KEYS = [
  { keys: ['Ctrl', 'K'], text: 'Search' },
  { keys: ['/'], text: 'Search' },
  ...Object.entries(PAGE_KEYS).map(([key, { name }]) => ({ keys: ['g', key], text: name })),
  { keys: ['?'], text: 'These keys' },
  { keys: ['Esc'], text: 'Close' },
]

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
          <div key={keys.join(' ')}>
            <dt>
              {keys.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{text}</dd>
          </div>
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
