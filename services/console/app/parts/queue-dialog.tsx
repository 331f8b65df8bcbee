import { useQuery } from '@tanstack/react-query'
import { useEffect, useRef } from 'react'
import type { RunView } from '../../src/contracts/runs.ts'
import { runPage } from '../../src/isomorphic/pages.ts'
import { Problem, readText } from '../api.ts'
import { copyId } from '../queued-data.ts'
import { ReadProblem } from './problem.tsx'
import { QueueForm } from './queue-form.tsx'
import { Outside } from './elements.tsx'

export interface QueueDialogProps {
  /** The process that is selected when the dialog opens. */
  readonly process?: string
  /** The run of which a copy is queued. */
  readonly run?: RunView
  readonly onClose: () => void
}

/** Queues a new transaction or a copy of a transaction. */
export function QueueDialog({ process = '', run, onClose }: QueueDialogProps) {
  const dialog = useRef<HTMLDialogElement>(null)
  useEffect(() => dialog.current?.showModal(), [])
  const close = (): void => dialog.current?.close()
  return (
    <dialog ref={dialog} className="large queue" aria-labelledby="queue" onClose={onClose}>
      <h2 id="queue">
        {run === undefined ? (
          'Queue a transaction'
        ) : (
          <>
            Queue a copy of <Outside text={run.TransactionID} />
          </>
        )}
      </h2>
      {run === undefined ? (
        <QueueForm draft={{ process, id: '', realm: '', tags: null, data: '' }} onClose={close} />
      ) : (
        <Copy run={run} onClose={close} />
      )}
    </dialog>
  )
}

function Copy({ run, onClose }: { readonly run: RunView; readonly onClose: () => void }) {
  const { Process: process, TransactionID: id, ReplayID, Realm, Tags } = run
  const data = useQuery({
    queryKey: ['run-text', process, id, ReplayID, 'initial'],
    queryFn: () =>
      readText(`${runPage(process, id)}/text?run=${ReplayID}&of=initial`).catch(
        (error: unknown) => {
          if (error instanceof Problem && error.code === NO_TEXT) return 'null'
          throw error
        },
      ),
    gcTime: 0,
  })
  if (data.data === undefined)
    return (
      <>
        <ReadProblem error={data.error} hasData={false} />
        {data.isLoading && <p className="muted">The data is being read.</p>}
        <div className="buttons">
          <button type="button" onClick={onClose}>
            Back
          </button>
        </div>
      </>
    )
  return (
    <QueueForm
      draft={{
        process,
        id: copyId(id),
        realm: Realm ?? '',
        tags: Tags,
        data: data.data,
      }}
      onClose={onClose}
    />
  )
}

const NO_TEXT = 'response_not_found'
