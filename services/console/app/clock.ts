/** Shows times by the clock of the server, because the clock of the browser may be wrong. */
import { counted } from '../src/isomorphic/texts.ts'
import { serverNow } from './server-clock.ts'
import { currentSettings } from './settings.ts'
import { createStore } from './store.ts'
import { type TimeFormat, timeFormat, withEvenWidth, zoneOf } from './time-format.ts'

const serverSeconds = (): number => Math.floor(serverNow() / 1_000)
const tick = createStore(serverSeconds())

/** Returns the server's time as ISO 8601. */
export const serverTimeText = (): string => new Date(serverNow()).toISOString()

// One timer serves the whole page. It pauses while the page is hidden.
setInterval(() => {
  if (!document.hidden) tick.set(serverSeconds())
}, 1_000)

/** Returns the server's time in whole seconds; the component is rendered again each second. */
export const useSeconds = (): number => tick.use(serverSeconds)

/** Returns a duration as text, such as `12 s`, `4 min`, `3 h 12 min`, `27 days` or `5 years`. */
export function duration(totalSeconds: number): string {
  const whole = Math.max(0, Math.round(totalSeconds))
  if (whole < 60) return `${whole} s`
  const minutes = Math.floor(whole / 60)
  if (minutes < 60) return `${minutes} min`
  const hours = Math.floor(minutes / 60)
  if (hours < 48) return minutes % 60 === 0 ? `${hours} h` : `${hours} h ${minutes % 60} min`
  const days = Math.floor(hours / 24)
  return days < 730 ? `${days} days` : `${Math.floor(days / 365)} years`
}

/** Returns a number of bytes as text, such as `812 KB` or `1.2 MB`. */
export const sizeText = (bytes: number): string =>
  bytes < 1_000
    ? counted(bytes, 'byte')
    : bytes < 999_500
      ? `${Math.round(bytes / 1_000)} KB`
      : `${(bytes / 1_000_000).toFixed(1)} MB`

let format = timeFormat(undefined)
let zone: string | undefined

/** Returns the time formats of the zone that the person has chosen. */
function chosen(): TimeFormat {
  const { times, zone: named } = currentSettings()
  const next = zoneOf(times, named)
  if (next !== zone) {
    zone = next
    format = timeFormat(next)
  }
  return format
}

export const full = (iso: string): string => chosen().full(new Date(iso))
export const dayName = (iso: string): string => chosen().dayName(new Date(iso))
export const timeOfDay = (iso: string): string => chosen().timeOfDay(new Date(iso))
export const fullMs = (iso: string): string => chosen().fullMs(new Date(iso))
export const timeMs = (iso: string): string => chosen().timeMs(new Date(iso))
/** Returns the time of day for a time of today, and the date with the time for any other time. */
export const inList = (iso: string): string => chosen().inList(new Date(iso), new Date(serverNow()))

/**
 * Returns the time for the clock in the bar. If the chosen zone is not the zone of this computer, the name of the zone
 * follows. Its width never changes.
 */
export function clockText(epochSeconds: number): string {
  const zoned = chosen()
  return `${withEvenWidth(zoned.clock(new Date(epochSeconds * 1_000)))} ${zoned.zoneName}`.trimEnd()
}

/** Returns the time until an event as text, such as `in 0:41` or `in 3 h 12 min`; `now` if the time has passed. */
export function remaining(exactSeconds: number): string {
  const whole = Math.ceil(exactSeconds)
  if (whole <= 0) return 'now'
  if (whole >= 3_600) return `in ${duration(whole)}`
  return `in ${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, '0')}`
}
