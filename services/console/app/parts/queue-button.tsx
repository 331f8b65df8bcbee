import { lazy, useState } from 'react'
import type { SessionView } from '../../src/contracts/session.ts'
import { BlockableButton, roleReason } from './blockable-button.tsx'
import { LaterPart } from './later.tsx'

const QueueDialog = lazy(async () => ({ default: (await import('../later.ts')).QueueDialog }))

export interface QueueButtonProps {
  readonly session: SessionView
  /** The process that is selected when the dialog opens. */
  readonly process?: string
}

/** Opens the dialog that queues a transaction. */
export function QueueButton({ session, process }: QueueButtonProps) {
  const [isOpen, setOpen] = useState(false)
  return (
    <>
      <BlockableButton blocked={roleReason(session)} onClick={() => setOpen(true)}>
        Queue…
      </BlockableButton>
      {isOpen && (
        <LaterPart>
          <QueueDialog {...(process !== undefined && { process })} onClose={() => setOpen(false)} />
        </LaterPart>
      )}
    </>
  )
}
