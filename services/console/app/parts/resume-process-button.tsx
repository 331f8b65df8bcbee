import { call } from '../api.ts'
import { ActionButton, reasonOf } from './action-button.tsx'

/** Resumes a paused process. `role` is the reason why the person may not act; `undefined` if the person may act. */
export function ResumeProcessButton({
  process,
  role,
}: {
  readonly process: string
  readonly role: string | undefined
}) {
  const path = `/processes/${encodeURIComponent(process)}/resume`
  return (
    <ActionButton
      verb="Resume"
      blocked={role}
      object={process}
      consequence="Its runs continue. Runs that have waited are due at once."
      reason="required"
      act={(form, key) => call('POST', path, reasonOf(form), key)}
      done={`${process} runs again.`}
    />
  )
}
