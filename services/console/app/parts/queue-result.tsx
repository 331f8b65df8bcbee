import { useEffect, useRef } from 'react'
import type { QueuedRun, RunDataView } from '../../src/contracts/runs.ts'
import { runPage } from '../../src/isomorphic/pages.ts'
import { Problem } from '../api.ts'
import { JsonView } from './json-view.tsx'
import { Link } from './link.tsx'
import { ProblemHelp, ReadProblem } from './problem.tsx'
import { Outside } from './elements.tsx'
import { useRead } from '../reads.ts'

export interface QueueResultProps {
  readonly process: string
  readonly id: string
  readonly run: QueuedRun
  readonly isPaused: boolean
  readonly onAnother: () => void
  readonly onClose: () => void
}

/** Says that a transaction was queued, or that it was queued before. */
export function QueueResult(props: QueueResultProps) {
  const { process, id, run, isPaused, onAnother, onClose } = props
  const sentence = useRef<HTMLParagraphElement>(null)
  // The form with the focused button was removed, so the focus moves to this sentence.
  useEffect(() => sentence.current?.focus(), [])
  return (
    <>
      <p ref={sentence} tabIndex={-1} className="outside">
        {run.IsNew ? 'Queued: ' : `It is there already, with the same data: ${run.Status}. `}
        <Link to={runPage(process, id, run.ReplayID)} text={id} />
        {run.IsNew && isPaused && '. It waits until the process is resumed.'}
      </p>
      {run.CompanyUnchecked && (
        <p>It could not be checked whether the company exists. Look at the run later.</p>
      )}
      <div className="buttons">
        <button type="button" onClick={onAnother}>
          Queue another
        </button>
        <button type="button" className="primary" onClick={onClose}>
          Close
        </button>
      </div>
    </>
  )
}

/** Says why a request was rejected. Each fault is shown with the path of the member. */
export function QueueProblem({ error }: { readonly error: Error }) {
  const errors = error instanceof Problem ? error.errors : []
  const isInput = error instanceof Problem && error.code === 'input_invalid'
  return (
    <div className="failure outside" role="alert">
      {errors.length === 0 ? (
        <Outside text={error.message} />
      ) : (
        <>
          {isInput ? 'The process does not accept this initial data:' : 'This is not accepted:'}
          <ul className="faults">
            {errors.map((one) => (
              <li key={one}>
                <Outside text={one} />
              </li>
            ))}
          </ul>
        </>
      )}
      <ProblemHelp error={error} />
    </div>
  )
}

export interface QueueConflictProps {
  readonly process: string
  readonly id: string
  readonly realm: string
  readonly tags: Readonly<Record<string, string>> | null
}

/**
 * Shows what the stored transaction of the same id has instead. Its data is that of its first run, with which the
 * coordinator compares.
 */
export function QueueConflict({ process, id, realm, tags }: QueueConflictProps) {
  const key = ['run', process, id, '0', 'conflict']
  const stored = useRead<RunDataView>(key, `${runPage(process, id)}/data?run=0`)
  const other = stored.data
  return (
    <div className="conflict">
      <p className="failure outside" role="alert">
        The id is taken by other data: <Link to={runPage(process, id)} text={id} />. Choose another
        id, or the same data.
      </p>
      <ReadProblem error={stored.error} hasData={false} />
      {other !== undefined && (
        <>
          {(other.Realm ?? '') !== realm && (
            <p className="outside">
              The company is <Outside text={other.Realm ?? 'none'} /> there, and{' '}
              <Outside text={realm === '' ? 'none' : realm} /> here.
            </p>
          )}
          {tagsText(other.Tags) !== tagsText(tags) && (
            <p className="outside">
              The tags are <Outside text={tagsText(other.Tags)} /> there, and{' '}
              <Outside text={tagsText(tags)} /> here.
            </p>
          )}
          <p>The data there:</p>
          <JsonView text={other.InitialData?.Text ?? 'null'} />
        </>
      )}
    </div>
  )
}

const tagsText = (tags: Readonly<Record<string, string>> | null): string =>
  Object.entries(tags ?? {})
    .map(([name, value]) => `${name}=${value}`)
    .toSorted()
    .join(', ') || 'none'
