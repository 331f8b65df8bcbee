import { lazy, useEffect, useRef, useState } from 'react'
import type { RunView } from '../../src/contracts/runs.ts'
import type { SessionView } from '../../src/contracts/session.ts'
import { copy } from '../copy.ts'
import { runPage } from '../router.ts'
import { curlCommand, showCommand } from '../shell-text.ts'
import { visible, visibleLines } from '../visible.ts'
import { BlockableButton, roleReason } from './blockable-button.tsx'
import { LaterPart } from './later.tsx'
import { MoreMenu } from './more-menu.tsx'

const QueueDialog = lazy(async () => ({ default: (await import('../later.ts')).QueueDialog }))

export interface RunMenuProps {
  readonly session: SessionView
  readonly run: RunView
}

/** The menu of less frequent actions on a run. */
export function RunMenu({ session, run }: RunMenuProps) {
  const [opened, setOpened] = useState<'copy' | 'raw' | null>(null)
  const close = (): void => setOpened(null)
  const { Process: process, TransactionID: id, ReplayID: number } = run
  const isGone = run.PurgedAt !== null || run.ErasedAt !== null
  return (
    <>
      <MoreMenu object={`run ${number} of ${visible(id)}`}>
        <BlockableButton
          blocked={
            roleReason(session) ??
            (session.SeesData ? undefined : 'This needs the right to see data.') ??
            (isGone ? 'The data of this run has been removed.' : undefined)
          }
          onClick={() => setOpened('copy')}
        >
          Queue a copy with changes…
        </BlockableButton>
        <button type="button" onClick={() => copy(id)}>
          Copy the id
        </button>
        <button
          type="button"
          onClick={() => copy(new URL(runPage(process, id, number), location.href).href)}
        >
          Copy a link
        </button>
        <button type="button" onClick={() => copy(showCommand(process, id, number))}>
          Copy as command
        </button>
        <button type="button" onClick={() => copy(curlCommand(process, id, number))}>
          Copy as curl
        </button>
        <button type="button" onClick={() => setOpened('raw')}>
          Show as JSON
        </button>
      </MoreMenu>
      {opened === 'copy' && (
        <LaterPart>
          <QueueDialog run={run} onClose={close} />
        </LaterPart>
      )}
      {opened === 'raw' && <RawDialog run={run} onClose={close} />}
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
      {/* A person scrolls it with the keys. */}
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
