import { duration, full, useSeconds } from '../clock.ts'

/** Shows how long ago a time was; the tooltip has the full time. */
export function Ago({ time, prefix = '' }: { readonly time: string; readonly prefix?: string }) {
  const seconds = useSeconds() - Date.parse(time) / 1_000
  return (
    <time dateTime={time} title={full(time)}>
      {seconds < 5 ? 'just now' : `${prefix}${duration(seconds)}${prefix === '' ? ' ago' : ''}`}
    </time>
  )
}
