import { useState } from 'react'
import { Problem } from '../api.ts'
import { full, serverTimeText, timeOfDay } from '../clock.ts'
import { DocumentLink, errorSection } from './link.tsx'
import { AsOf } from './ago.tsx'
import { Outside } from './elements.tsx'

/** Shows that a part of the page could not be read. The page keeps what was read before. */
export function ReadProblem({
  error,
  hasData,
}: {
  readonly error: Error | null
  readonly hasData: boolean
}) {
  if (error === null) return null
  const isTemporary = !(error instanceof Problem) || error.status === 0 || error.status >= 500
  return (
    <p className={`failure ${hasData ? 'with-outdated' : ''}`} role="alert">
      <Outside text={error.message} />
      {error instanceof Problem && error.since !== null ? (
        <Since time={error.since} />
      ) : (
        !/[.!?]$/.test(error.message) && '.'
      )}
      {isTemporary && ' It is tried again by itself.'}
      {hasData && <Outdated />}
      <ProblemHelp error={error} />
    </p>
  )
}

/** Continues a sentence with the time since which a service does not respond. */
export const Since = ({ time }: { readonly time: string }) => (
  <>
    {' '}
    since{' '}
    <time dateTime={time} title={full(time)}>
      {timeOfDay(time)}
    </time>
    .
  </>
)

/** Shows the time of the outdated content of the page: the time of the first read that failed. */
function Outdated() {
  const [since] = useState(serverTimeText)
  return (
    <>
      {' '}
      What you see is <AsOf time={since} />.
    </>
  )
}

/** A link to the explanation of the code of a problem. */
export function ProblemHelp({ error }: { readonly error: Error }) {
  if (!(error instanceof Problem) || error.status === 0 || error.code === 'unknown') return null
  return (
    <>
      {' '}
      <DocumentLink to={errorSection(error.code)}>What {error.code} means</DocumentLink>
    </>
  )
}
