import { numberText } from '../../src/isomorphic/texts.ts'

/** Shows the used share of a limit as text and as a bar. */
export function LimitBar({
  used,
  limit,
}: {
  readonly used: number
  readonly limit: number | null
}) {
  const share = limit === null || limit === 0 ? 0 : Math.min(1, used / limit)
  return (
    <span className="limit">
      <span>
        {numberText(used)}
        {limit !== null && <span className="muted"> of {numberText(limit)}</span>}
      </span>
      {limit !== null && (
        <svg viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
          <rect className="base" width="100" height="4" />
          <rect className={share > 0.8 ? 'high' : 'part'} width={share * 100} height="4" />
        </svg>
      )}
    </span>
  )
}
