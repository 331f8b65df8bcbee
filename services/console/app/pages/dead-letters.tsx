import { useReadPages } from '../reads.ts'
import { useRole } from '../parts/blockable-button.tsx'
import type { DeadLettersView } from '../../src/contracts/processes.ts'
import { counted } from '../../src/isomorphic/texts.ts'
import { runPage } from '../../src/isomorphic/pages.ts'
import { ActionButton } from '../parts/action-button.tsx'
import { Ago } from '../parts/ago.tsx'
import { Link } from '../parts/link.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { MoreButton, Outside } from '../parts/elements.tsx'

/**
 * The explanation and the remedy for each reason of a dead letter. A reason may contain further text after a colon; the
 * page shows this text unchanged.
 */
const REASONS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    malformed: 'The content is not a message of the coordinator. Fix its sender.',
    wrong_queue: 'The message was sent to the queue of another process. Fix its sender.',
    unknown_process: 'No coordinator had loaded the process. Deploy it, then requeue.',
    unknown_step: 'The process had no such step. Deploy it, then requeue.',
    unknown_transaction: 'There is no such run.',
    delivery_limit: 'It was delivered too often without success. Look at the log, then requeue.',
    invalid_request: 'The message that should start a run is not valid. Fix its sender.',
    input_invalid: 'The process does not accept this initial data. Fix the sender or the process.',
    payload_too_large: 'The initial data is too large.',
    transaction_conflict: 'The id is used for other data.',
  }),
)

/**
 * Shows the dead letters of a process: messages that could not be processed. Dead letters contain business data, so
 * only operators may read them.
 */
export function DeadLettersPage({ process }: { readonly process: string }) {
  const isOperator = useRole() === undefined
  const path = `/dead-letters/${encodeURIComponent(process)}`
  const letters = useReadPages<DeadLettersView>(path, '', (page) => page.next_cursor, isOperator)
  const items = letters.data?.pages.flatMap((page) => page.items) ?? []
  return (
    <>
      <p className="crumbs">
        <Link to="/processes">Processes</Link>
      </p>
      <h1 tabIndex={-1} className="outside">
        Dead letters of <Outside text={process} />
      </h1>
      {!isOperator && <p>Dead letters contain data. This needs the role operator.</p>}
      <ReadProblem error={letters.error} hasData={letters.data !== undefined} />
      {letters.isSuccess && items.length === 0 && (
        <section className="panel" aria-label="No dead letters">
          <p>
            There are none. A message that cannot be read, or that belongs to no run, would be kept
            here.
          </p>
        </section>
      )}
      {items.length > 0 && (
        <div className="buttons">
          <ActionButton
            verb="Discard all"
            isDangerous
            object={`dead letters of ${process}`}
            consequence="All dead letters of this process are deleted, also those that are not shown. No run is changed."
            reason="required"
            typed={process}
            act={`${path}/discard`}
            done="The dead letters are deleted."
          />
        </div>
      )}
      {items.map((letter) => {
        const [reason = ''] = letter.Reason.split(':')
        return (
          <section key={letter.ID} className="panel" aria-label={`Dead letter ${letter.ID}`}>
            <p className="headline">
              <strong className="outside">
                <Outside text={letter.Reason} />
              </strong>
              <span className="muted">
                <Ago time={letter.At} />
              </span>
            </p>
            {REASONS.has(reason) && <p>{REASONS.get(reason)}</p>}
            {letter.TransactionID !== null && (
              <p>
                Run:{' '}
                <Link
                  to={runPage(process, letter.TransactionID, letter.ReplayID ?? undefined)}
                  text={letter.TransactionID}
                />
              </p>
            )}
            <details className="text">
              <summary>
                Content, {counted(letter.ContentBytes, 'byte')}
                {letter.Encoding === 'base64' && ' in base64'}
              </summary>
              <pre>
                <Outside text={letter.Content} hasLines />
              </pre>
            </details>
            <div className="buttons">
              <ActionButton
                verb="Requeue"
                object={`dead letter ${letter.ID}`}
                consequence="The due step of its run is published again, or its transaction is queued. The dead letter is deleted."
                reason="required"
                act={`${path}/${letter.ID}/requeue`}
                done="The dead letter is requeued."
              />
              <ActionButton
                verb="Discard"
                isDangerous
                object={`dead letter ${letter.ID}`}
                consequence="The dead letter is deleted. No run is changed."
                reason="required"
                act={`${path}/${letter.ID}/discard`}
                done="The dead letter is deleted."
              />
            </div>
          </section>
        )
      })}
      <MoreButton list={letters}>Show older dead letters</MoreButton>
    </>
  )
}
