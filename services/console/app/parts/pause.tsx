import { keyName } from '../../src/isomorphic/texts.ts'
import { ActionButton } from './action-button.tsx'
import { Ago } from './ago.tsx'
import { Outside } from './elements.tsx'

type Paused = { readonly process: string } | { readonly realm: string; readonly name: string }

/** Resumes a paused process, or the runs of a paused company. */
export function ResumeButton(paused: Paused) {
  const isProcess = 'process' in paused
  return (
    <ActionButton
      verb="Resume"
      object={isProcess ? paused.process : paused.name}
      consequence="Its runs continue. Runs that have waited are due at once."
      reason="required"
      act={
        isProcess
          ? `/processes/${encodeURIComponent(paused.process)}/resume`
          : `/companies/${encodeURIComponent(paused.realm)}/runs/resume`
      }
      done={isProcess ? `${paused.process} runs again.` : 'The runs of the company continue.'}
    />
  )
}

interface PauseProps {
  readonly at: string | null
  readonly by: string | null
  readonly reason: string | null
}

/** Shows since when something is paused, who has paused it, and why. */
export const Pause = ({ at, by, reason }: PauseProps) => (
  <>
    {at !== null && <Ago time={at} prefix="for " />}
    {by !== null && (
      <>
        {' '}
        by <Outside text={keyName(by)} />
      </>
    )}
    {reason !== null && (
      <>
        : “<Outside text={reason} />”
      </>
    )}
  </>
)
