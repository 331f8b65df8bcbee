import type { ActivityEntry } from '../../src/contracts/activity.ts'
import { visible } from '../visible.ts'
import { Link } from './link.tsx'
import { Outside } from './elements.tsx'

interface ActivityTextProps {
  readonly entry: ActivityEntry
  /** Whether the outcome is shown, if the action was rejected or a refresh failed. */
  readonly hasOutcome?: boolean
}

/** Says who did what to what, and why. A target that has a page is a link. */
export function ActivityText({ entry, hasOutcome = false }: ActivityTextProps) {
  const { Who, Via, What, Target, Company, Page, Reason, Outcome } = entry
  const target = Company ?? Target
  return (
    <>
      <strong title={Via === null ? undefined : visible(`with ${Via}`)}>
        <Outside text={Who} />
      </strong>{' '}
      <Outside text={What} />
      {target !== null && (
        <> {Page === null ? <Outside text={target} /> : <Link to={Page} text={target} />}</>
      )}
      {Company !== null && Target !== null && (
        <span className="muted">
          {' '}
          <Outside text={Target} />
        </span>
      )}
      {hasOutcome && Outcome !== null && (
        <>
          {' '}
          <Outside text={`(${Outcome})`} />
        </>
      )}
      {Reason !== null && (
        <>
          {' '}
          <q>
            <Outside text={Reason} />
          </q>
        </>
      )}
    </>
  )
}
