import type { ActedRun, DecisionBody, RunDataView, RunView } from '../../src/contracts/runs.ts'
import { runPage } from '../../src/isomorphic/pages.ts'
import { call } from '../api.ts'
import { ActionButton, reasonOf } from './action-button.tsx'
import { useSession } from './blockable-button.tsx'
import { Fact, FieldName, Outside } from './elements.tsx'
import { ReadProblem } from './problem.tsx'
import { useRead } from '../reads.ts'

interface RunDecisionProps {
  readonly run: RunView
  readonly decision: NonNullable<RunView['Decision']>
}

/** Shows what a person is asked about the run, and one button for each choice. */
export function RunDecision({ run, decision }: RunDecisionProps) {
  const { Process: process, TransactionID: id, ReplayID: number, Version } = run
  const { Event, Choices, HasNote } = decision
  const path = runPage(process, id)
  const { SeesData } = useSession()
  const queryKey = ['run', process, id, String(number), 'data', Version]
  const { data, error } = useRead<RunDataView>(queryKey, `${path}/data?run=${number}`, {
    enabled: SeesData,
  })
  const ask = data?.Items.find(({ StepName }) => StepName === Event)?.Ask ?? null
  const act = (choice: boolean | string) => (form: FormData, key: string) => {
    const note = form.get('note')
    const body: DecisionBody = {
      Run: number,
      Version,
      Choice: choice,
      ...reasonOf(form),
      ...(typeof note === 'string' && note !== '' && { Note: note }),
    }
    const to = `${path}/decisions/${encodeURIComponent(Event)}`
    return call<ActedRun>('POST', to, body, key)
  }
  return (
    <section aria-label="Decision" className="decision">
      <ReadProblem error={error} hasData={data !== undefined} />
      {ask !== null && (
        <>
          <h2 className="outside">
            <Outside text={ask.Title} />
          </h2>
          <dl className="figures">
            {ask.Facts.map(({ Name, Text }) => (
              <Fact
                key={Name}
                name={
                  <>
                    <Outside text={Name} />
                  </>
                }
              >
                <Outside text={Text} />
              </Fact>
            ))}
          </dl>
        </>
      )}
      <div className="buttons after">
        {Choices.map(({ Choice, Text }) => (
          <ActionButton
            key={Text}
            verb={Text}
            question={`Decide “${Text}” for`}
            object={`run ${number} of ${id}`}
            consequence="The run goes on with this decision, which names you. It cannot be changed."
            // A note is passed to the process. Without a place for it, the reason is.
            reason={HasNote ? 'none' : 'optional'}
            act={act(Choice)}
            done="The decision is made."
          >
            {HasNote && (
              <label>
                <FieldName need="optional">Note</FieldName>
                <textarea name="note" rows={3} maxLength={2_000} />
              </label>
            )}
          </ActionButton>
        ))}
      </div>
    </section>
  )
}
