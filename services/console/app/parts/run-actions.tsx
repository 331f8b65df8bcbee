import type { ActedRun, RunAction, RunView } from '../../src/contracts/runs.ts'
import type { SessionView } from '../../src/contracts/session.ts'
import { runPage } from '../../src/isomorphic/pages.ts'
import { call } from '../api.ts'
import { goTo } from '../router.ts'
import { visible } from '../visible.ts'
import { ActionButton, type ActionButtonProps, reasonOf } from './action-button.tsx'
import { roleReason } from './blockable-button.tsx'
import { ConnectButton } from './connect-button.tsx'
import { FieldName } from './field-name.tsx'
import { REJECTED_AGAIN } from './bulk-button.tsx'
import { useRunCopy } from './run-copy.tsx'
import { RunMenu } from './run-menu.tsx'

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

export interface RunActionsProps {
  readonly session: SessionView
  readonly run: RunView
}

export type OfferedAction = ActionButtonProps & { readonly action: RunAction }

/**
 * Returns the actions on a run, for its page and for the menu of the list. For an action that is not possible now, the
 * result contains the reason. `onReplayed` gets the number of the new run after a replay.
 */
export function actionsOn(
  { session, run }: RunActionsProps,
  onReplayed: (run: number) => void,
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
      blocked: roleReason(session) ?? run.Blocked[action],
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
export function RunActions({ run, session }: RunActionsProps) {
  const { Process: process, TransactionID: id } = run
  const actions = actionsOn({ session, run }, (number) => goTo(runPage(process, id, number)))
  const copy = useRunCopy(session, run)
  return (
    <div className="buttons">
      {run.Broken !== null && <ConnectButton session={session} company={run.Broken} isPrimary />}
      {run.DataRejected && copy.button}
      {actions.map((offered) => (
        <ActionButton key={offered.action} {...offered} />
      ))}
      <RunMenu session={session} run={run}>
        {!run.DataRejected && copy.button}
      </RunMenu>
      {copy.dialog}
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
