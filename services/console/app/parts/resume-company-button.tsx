import { call } from '../api.ts'
import { ActionButton, reasonOf } from './action-button.tsx'

/**
 * Resumes the runs of a paused company. `role` is the reason why the person may not act; `undefined` if the person may
 * act.
 */
export function ResumeCompanyButton({
  realm,
  name,
  role,
}: {
  readonly realm: string
  readonly name: string
  readonly role: string | undefined
}) {
  return (
    <ActionButton
      verb="Resume"
      blocked={role}
      object={name}
      consequence="Its runs continue. Runs that have waited are due at once."
      reason="required"
      act={(form, key) =>
        call('POST', `/companies/${encodeURIComponent(realm)}/runs/resume`, reasonOf(form), key)
      }
      done="The runs of the company continue."
    />
  )
}
