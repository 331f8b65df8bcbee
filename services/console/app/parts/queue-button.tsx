import { lazy, type ReactNode, useState } from 'react'
import { BlockableButton, useDataReason, useRole, useSession } from './blockable-button.tsx'
import { LaterPart } from './later.tsx'
import type { RunView } from '../../src/contracts/runs.ts'
import type { ProcessesView } from '../../src/contracts/processes.ts'
import { DEMO_PROCESS, queueCommand } from '../shell-text.ts'
import { Outside } from './elements.tsx'
import { useRead } from '../reads.ts'

const QueueDialog = lazy(async () => ({ default: (await import('../later.ts')).QueueDialog }))

/** Opens the dialog that queues a transaction. `process` is selected when the dialog opens. */
export function QueueButton({ process }: { readonly process?: string }) {
  const [isOpen, setOpen] = useState(false)
  return (
    <>
      <BlockableButton blocked={useRole()} onClick={() => setOpen(true)}>
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

/**
 * Returns the button that queues a copy of a run with changes, and its dialog; `null` for both until the run was read.
 * They are separate elements, because a dialog inside a menu would disappear with the menu.
 */
export function useRunCopy(run: RunView | undefined): {
  readonly button: ReactNode
  readonly dialog: ReactNode
} {
  const [isOpen, setOpen] = useState(false)
  const role = useRole()
  const noData = useDataReason()
  if (run === undefined) return { button: null, dialog: null }
  const isGone = run.PurgedAt !== null || run.ErasedAt !== null
  const blocked = role ?? noData ?? (isGone ? 'The data of this run has been removed.' : undefined)
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

/** The command that queues a first transaction, to a process of this installation. */
export function QueueCommand() {
  const { CommandLine } = useSession()
  const processes = useRead<ProcessesView>(['processes'], '/processes')
  const names = (processes.data?.Processes ?? [])
    .filter(({ BuiltIn }) => !BuiltIn)
    .map(({ Process }) => Process)
  const name = names.find((each) => each === DEMO_PROCESS) ?? names[0] ?? DEMO_PROCESS
  return (
    <code>
      <Outside text={queueCommand(CommandLine, name)} />
    </code>
  )
}
