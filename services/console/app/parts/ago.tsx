import { duration, full, inList, timeOfDay, useSeconds } from '../clock.ts'
import { useSettings } from '../settings.ts'

/**
 * Shows how long ago a time was, or the time itself if the person prefers this. The tooltip shows the full time.
 */
export function Ago({ time, prefix = '' }: { readonly time: string; readonly prefix?: string }) {
  const seconds = useSeconds() - Date.parse(time) / 1_000
  const { times } = useSettings()
  const isFor = prefix === 'for '
  const text =
    times !== 'relative'
      ? `${isFor ? 'since ' : prefix}${inList(time)}`
      : seconds < 5
        ? 'just now'
        : `${prefix}${duration(seconds)}${prefix === '' ? ' ago' : ''}`
  return (
    <time dateTime={time} title={full(time)}>
      {text}
    </time>
  )
}

/** Shows the time of outdated values. Values are outdated while the service that reports them does not respond. */
export const AsOf = ({ time }: { readonly time: string }) => (
  <span className="muted">
    as of{' '}
    <time dateTime={time} title={full(time)}>
      {timeOfDay(time)}
    </time>
  </span>
)
