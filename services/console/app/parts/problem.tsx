import { Problem } from '../api.ts'
import { Outside } from './text.tsx'

/** Says that a part of the page could not be read. What was read before stays on the page. */
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
    <p className="failure" role="alert">
      <Outside text={error.message} />
      {isTemporary && ' It is tried again by itself.'}
      {hasData && ' What you see is from before.'}
    </p>
  )
}
