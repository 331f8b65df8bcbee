import { lazy, type ReactNode, useState } from 'react'
import type { RunView } from '../../src/contracts/runs.ts'
import type { SessionView } from '../../src/contracts/session.ts'
import { BlockableButton, dataReason, roleReason } from './blockable-button.tsx'
import { LaterPart } from './later.tsx'

const QueueDialog = lazy(async () => ({ default: (await import('../later.ts')).QueueDialog }))

/**
 * Returns the button that queues a copy of a run with changes, and its dialog; `null` for both until the run was read. The button and the dialog are separate
 * elements, because a dialog inside a menu would disappear with the menu.
 */
export function useRunCopy(
  session: SessionView,
  run: RunView | undefined,
): { readonly button: ReactNode; readonly dialog: ReactNode } {
  const [isOpen, setOpen] = useState(false)
  if (run === undefined) return { button: null, dialog: null }
  const isGone = run.PurgedAt !== null || run.ErasedAt !== null
  const blocked =
    roleReason(session) ??
    dataReason(session) ??
    (isGone ? 'The data of this run has been removed.' : undefined)
  return {
    button: (
      <BlockableButton blocked={blocked} onClick={() => setOpen(true)}>
        Queue a copy with changes…
      </BlockableButton>
    ),
    dialog: isOpen && (
      <LaterPart>
        <QueueDialog run={run} onClose={() => setOpen(false)} />
      </LaterPart>
    ),
  }
}
