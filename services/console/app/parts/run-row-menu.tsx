import { useQuery } from '@tanstack/react-query'
import { type RefObject, useRef, useState } from 'react'
import type { RunAction, RunRow, RunView } from '../../src/contracts/runs.ts'
import type { SessionView } from '../../src/contracts/session.ts'
import { runPage } from '../../src/isomorphic/pages.ts'
import { call } from '../api.ts'
import { copy } from '../copy.ts'
import { showCommand } from '../shell-text.ts'
import { ActionDialog, type ActionRequest } from './action-button.tsx'
import { BlockableButton } from './blockable-button.tsx'
import { Link } from './link.tsx'
import { Menu } from './more-menu.tsx'
import { actionsOn } from './run-actions.tsx'
import { useRunCopy } from './run-copy.tsx'
import { Outside } from './text.tsx'

export interface RunRowMenuProps {
  /** The id that the buttons of the rows have as their `popoverTarget`. */
  readonly id: string
  readonly session: SessionView
  /** The run of the row whose menu was opened last. */
  readonly run: RunRow
  readonly opener: RefObject<HTMLElement | null>
}

/**
 * The menu of a row of the list of runs. All rows share one menu, so that a long list needs few elements. The run is
 * read when the menu is opened, because an action needs the version of the run, and the list does not have the version.
 */
export function RunRowMenu({ id, session, run: row, opener }: RunRowMenuProps) {
  const [isOpen, setOpen] = useState(false)
  const [chosen, setChosen] = useState<RunAction | null>(null)
  const unansweredRef = useRef<ActionRequest | null>(null)
  const { Process: process, TransactionID: transaction, ReplayID: number } = row
  const { data: run, error } = useQuery({
    queryKey: ['run', process, transaction, String(number)],
    queryFn: () => call<RunView>('GET', `${runPage(process, transaction)}?run=${number}`),
    enabled: isOpen,
  })
  const page = runPage(process, transaction, number)
  const actions = run === undefined ? [] : actionsOn({ session, run }, () => {})
  const copied = useRunCopy(session, run)
  const confirmed = actions.find(({ action }) => action === chosen)
  return (
    <>
      <Menu id={id} opener={opener} onToggle={setOpen}>
        <Link to={page}>Open</Link>
        <a href={page} target="_blank" rel="noopener">
          Open in a new tab
        </a>
        <button type="button" onClick={() => copy(transaction)}>
          Copy the id
        </button>
        <button type="button" onClick={() => copy(new URL(page, location.href).href)}>
          Copy a link
        </button>
        <button
          type="button"
          onClick={() => copy(showCommand(session.CommandLine, process, transaction, number))}
        >
          Copy as command
        </button>
        <hr />
        {row.DataRejected && copied.button}
        {actions.map(({ action, verb, blocked }) => (
          <BlockableButton key={action} blocked={blocked} onClick={() => setChosen(action)}>
            {verb}…
          </BlockableButton>
        ))}
        {!row.DataRejected && copied.button}
        {run === undefined && (
          <p className="muted">
            {error === null ? 'The actions are being read.' : <Outside text={error.message} />}
          </p>
        )}
      </Menu>
      {copied.dialog}
      {confirmed !== undefined && (
        <ActionDialog
          {...confirmed}
          unansweredRef={unansweredRef}
          onClose={() => setChosen(null)}
        />
      )}
    </>
  )
}
