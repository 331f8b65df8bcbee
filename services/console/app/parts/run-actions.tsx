/** The actions on a run: as buttons on its page, and as the menu of its row in the list. */
import { type RefObject, useEffect, useRef, useState } from 'react'
import type { ActedRun, RunAction, RunRow, RunView } from '../../src/contracts/runs.ts'
import { runPage } from '../../src/isomorphic/pages.ts'
import { call } from '../api.ts'
import { copy } from '../notice.ts'
import { useRead } from '../reads.ts'
import { goTo } from '../router.ts'
import { curlCommand, showCommand } from '../shell-text.ts'
import { visible, visibleLines } from '../visible.ts'
import {
  ActionButton,
  type ActionButtonProps,
  ActionDialog,
  type ActionRequest,
  reasonOf,
} from './action-button.tsx'
import { BlockableButton, useRole, useSession } from './blockable-button.tsx'
import { REJECTED_AGAIN } from './bulk-button.tsx'
import { ConnectButton } from './connect-button.tsx'
import { FieldName, Outside } from './elements.tsx'
import { Link } from './link.tsx'
import { Menu, MoreMenu } from './more-menu.tsx'
import { useRunCopy } from './queue-button.tsx'

/** The consequence of each action, for its confirmation. */
function consequenceOf(action: RunAction, run: RunView): string {
  const doubt = run.InDoubt
    ? ' The last call may have done its work: look into the target first.'
    : ''
  const creation = run.Entries.some(({ Operation }) => Operation === 'create')
    ? ' What the run has created in the books is created once more, except by createOnce.'
    : ''
  const rejection = run.DataRejected ? ` ${REJECTED_AGAIN}` : ''
  switch (action) {
    case 'resume':
      return `The run continues at ${run.StepName} with the same idempotency keys. A target that knows them does nothing twice.${doubt}${rejection}`
    case 'retry':
      return `The run does not wait any longer: ${run.StepName} is due now.`
    case 'replay':
      return `A new run begins with new idempotency keys, so that calls are made again that were already completed.${creation}${rejection}`
    case 'settle':
      return `You say whether ${run.StepName} has done its work. If it has, the next step follows; if not, it is run again.`
    case 'undo':
      return `The completed steps are undone, the last one first. Steps without an undo are left. The run cannot be resumed afterwards.${doubt}`
    case 'cancel':
      return 'The run ends. A call in flight is aborted, and may nevertheless have done its work.'
  }
}

const ACTIONS = [
  { action: 'resume', verb: 'Resume', done: 'The run was resumed.' },
  { action: 'retry', verb: 'Retry now', done: 'The step is due now.' },
  { action: 'replay', verb: 'Replay', done: 'A new run has begun.' },
  { action: 'settle', verb: 'Settle', done: 'The doubt is settled.' },
  { action: 'undo', verb: 'Undo', done: 'The undo has begun.' },
  { action: 'cancel', verb: 'Cancel run', done: 'The run is cancelled.' },
] as const satisfies readonly { action: RunAction; verb: string; done: string }[]

type OfferedAction = ActionButtonProps & { readonly action: RunAction }

/**
 * Returns the actions on a run, for its page and for the menu of the list. For an action that is not possible now, the
 * result contains the reason. `onReplayed` gets the number of the new run after a replay.
 */
function actionsOn(
  run: RunView,
  onReplayed: (run: number) => void = () => {},
): readonly OfferedAction[] {
  const { Process: process, TransactionID: id } = run
  const act = async (action: RunAction, form: FormData, key: string): Promise<void> => {
    const fromStep = form.get('fromStep')
    const outcome = form.get('outcome')
    const body = {
      Run: run.ReplayID,
      Version: run.Version,
      ...reasonOf(form),
      ...(typeof fromStep === 'string' && fromStep !== '' && { FromStep: fromStep }),
      ...(outcome !== null && { Outcome: outcome }),
    }
    const path = `${runPage(process, id)}/${action}`
    const acted = await call<ActedRun>('POST', path, body, key)
    if (action === 'replay') onReplayed(acted.ReplayID)
  }
  return ACTIONS.filter(({ action }) => action !== 'settle' || run.InDoubt).map(
    ({ action, verb, done }) => ({
      action,
      verb,
      blocked: run.Blocked[action],
      object: `run ${run.ReplayID} of ${id}`,
      ...(action === 'cancel' && { question: 'Cancel', isDangerous: true }),
      ...(action === 'undo' && { isDangerous: true }),
      consequence: consequenceOf(action, run),
      reason: action === 'settle' ? 'required' : 'optional',
      act: (form, key) => act(action, form, key),
      done,
      children: <ActionFields action={action} run={run} />,
    }),
  )
}

/**
 * Shows the actions on a run. An action that is not possible now shows the reason. If the data of the run was rejected,
 * queuing a copy with changes is the first action. Otherwise, this action is in the menu.
 */
export function RunActions({ run }: { readonly run: RunView }) {
  const { Process: process, TransactionID: id, ReplayID: number } = run
  const actions = actionsOn(run, (next) => goTo(runPage(process, id, next)))
  const copied = useRunCopy(run)
  const [isRaw, setRaw] = useState(false)
  return (
    <div className="buttons">
      {run.Broken !== null && <ConnectButton company={run.Broken} isPrimary />}
      {run.DataRejected && copied.button}
      {actions.map((offered) => (
        <ActionButton key={offered.action} {...offered} />
      ))}
      <MoreMenu object={`run ${number} of ${visible(id)}`}>
        {!run.DataRejected && copied.button}
        <CopyButtons run={run} />
        <button type="button" onClick={() => copy(curlCommand(process, id, number))}>
          Copy as curl
        </button>
        <button type="button" onClick={() => setRaw(true)}>
          Show as JSON
        </button>
      </MoreMenu>
      {isRaw && <RawDialog run={run} onClose={() => setRaw(false)} />}
      {copied.dialog}
    </div>
  )
}

/** The fields that the confirmation of an action has besides the reason. */
function ActionFields({ action, run }: { readonly action: RunAction; readonly run: RunView }) {
  const completed = run.Items.filter(({ Status }) =>
    ['Completed', 'Copied', 'Skipped'].includes(Status),
  )
  return (
    <>
      {action === 'replay' && completed.length > 0 && (
        <label>
          Begin with
          <select name="fromStep" defaultValue="">
            <option value="">the first step</option>
            {run.Steps.filter((_, index) =>
              run.Steps.slice(0, index).every((before) =>
                completed.some(({ StepName }) => StepName === before),
              ),
            )
              .slice(1)
              .map((step) => (
                <option key={step} value={step}>
                  {visible(step)}
                </option>
              ))}
          </select>
        </label>
      )}
      {action === 'settle' && (
        <fieldset>
          <legend>
            <FieldName need="required">Has the step done its work?</FieldName>
          </legend>
          <label>
            <input type="radio" name="outcome" value="done" required /> Yes, it is done
          </label>
          <label>
            <input type="radio" name="outcome" value="not_done" required /> No, run it again
          </label>
        </fieldset>
      )}
    </>
  )
}

function CopyButtons({
  run: { Process: process, TransactionID: id, ReplayID: number },
}: {
  readonly run: Pick<RunRow, 'Process' | 'TransactionID' | 'ReplayID'>
}) {
  const { CommandLine } = useSession()
  const texts = {
    'Copy the id': id,
    'Copy a link': new URL(runPage(process, id, number), location.href).href,
    'Copy as command': showCommand(CommandLine, process, id, number),
  }
  return Object.entries(texts).map(([name, text]) => (
    <button key={name} type="button" onClick={() => copy(text)}>
      {name}
    </button>
  ))
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

export interface RunRowMenuProps {
  /** The id that the buttons of the rows have as their `popoverTarget`. */
  readonly id: string
  /** The run of the row whose menu was opened last. */
  readonly run: RunRow
  readonly opener: RefObject<HTMLElement | null>
}

/**
 * The menu of a row of the list of runs. All rows share one menu, so that a long list needs few elements. The run is
 * read when the menu is opened, because an action needs the version of the run, and the list does not have the version.
 */
export function RunRowMenu({ id, run: row, opener }: RunRowMenuProps) {
  const [isOpen, setOpen] = useState(false)
  const [chosen, setChosen] = useState<RunAction | null>(null)
  const unansweredRef = useRef<ActionRequest | null>(null)
  const { Process: process, TransactionID: transaction, ReplayID: number } = row
  const page = runPage(process, transaction, number)
  const key = ['run', process, transaction, String(number)]
  const { data: run, error } = useRead<RunView>(key, page, { enabled: isOpen })
  const role = useRole()
  const actions = run === undefined ? [] : actionsOn(run)
  const copied = useRunCopy(run)
  const confirmed = actions.find(({ action }) => action === chosen)
  return (
    <>
      <Menu id={id} opener={opener} onToggle={setOpen}>
        <Link to={page}>Open</Link>
        <a href={page} target="_blank" rel="noopener">
          Open in a new tab
        </a>
        <CopyButtons run={row} />
        <hr />
        {row.DataRejected && copied.button}
        {actions.map(({ action, verb, blocked }) => (
          <BlockableButton key={action} blocked={role ?? blocked} onClick={() => setChosen(action)}>
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
