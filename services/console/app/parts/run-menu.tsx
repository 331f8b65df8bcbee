import { type ReactNode, useEffect, useRef, useState } from 'react'
import type { RunView } from '../../src/contracts/runs.ts'
import type { SessionView } from '../../src/contracts/session.ts'
import { runPage } from '../../src/isomorphic/pages.ts'
import { copy } from '../copy.ts'
import { curlCommand, showCommand } from '../shell-text.ts'
import { visible, visibleLines } from '../visible.ts'
import { MoreMenu } from './more-menu.tsx'

export interface RunMenuProps {
  readonly session: SessionView
  readonly run: RunView
  /** Actions that the menu shows above its own actions. */
  readonly children: ReactNode
}

/** The menu of less frequent actions on a run. */
export function RunMenu({ session, run, children }: RunMenuProps) {
  const [isRaw, setRaw] = useState(false)
  const { Process: process, TransactionID: id, ReplayID: number } = run
  return (
    <>
      <MoreMenu object={`run ${number} of ${visible(id)}`}>
        {children}
        <button type="button" onClick={() => copy(id)}>
          Copy the id
        </button>
        <button
          type="button"
          onClick={() => copy(new URL(runPage(process, id, number), location.href).href)}
        >
          Copy a link
        </button>
        <button
          type="button"
          onClick={() => copy(showCommand(session.CommandLine, process, id, number))}
        >
          Copy as command
        </button>
        <button type="button" onClick={() => copy(curlCommand(process, id, number))}>
          Copy as curl
        </button>
        <button type="button" onClick={() => setRaw(true)}>
          Show as JSON
        </button>
      </MoreMenu>
      {isRaw && <RawDialog run={run} onClose={() => setRaw(false)} />}
    </>
  )
}

function RawDialog({ run, onClose }: { readonly run: RunView; readonly onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null)
  useEffect(() => dialog.current?.showModal(), [])
  const text = JSON.stringify(run, null, 2)
  return (
    <dialog ref={dialog} className="large" aria-labelledby="raw" onClose={onClose}>
      <h2 id="raw">The run as JSON</h2>
      <p className="muted">As the console reads it, without the business data.</p>
      {/* A person can focus this element and scroll it with the keyboard. */}
      {/* oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
      <pre className="scroll" tabIndex={0}>
        {visibleLines(text)}
      </pre>
      <div className="buttons">
        <button type="button" onClick={() => copy(text)}>
          Copy
        </button>
        <button type="button" onClick={() => dialog.current?.close()}>
          Close
        </button>
      </div>
    </dialog>
  )
}
