/** Times are shown by the clock of the server, because the clock of the browser may be wrong. */
import { useSyncExternalStore } from 'react'

let offsetMs = 0
const listeners = new Set<() => void>()
let seconds = Math.floor(Date.now() / 1_000)

const serverNow = (): number => Date.now() + offsetMs

/** Sets the server's time as it was in the middle of a request that began at `sentAt` and has just ended. */
export function setServerTime(serverTime: string, sentAt: number): void {
  offsetMs = Date.parse(serverTime) - (sentAt + Date.now()) / 2
}

// One timer serves the whole page. It pauses while the page is hidden.
setInterval(() => {
  if (document.hidden) return
  seconds = Math.floor(serverNow() / 1_000)
  for (const listener of listeners) listener()
}, 1_000)

function subscribe(listener: () => void): () => void {
  listeners.add(listener)
  return () => void listeners.delete(listener)
}

/** Returns the server's time in whole seconds; the component is rendered again each second. */
export const useSeconds = (): number => useSyncExternalStore(subscribe, () => seconds)

/** Returns `12 s`, `4 min`, `3 h 12 min` or `27 days`. */
export function duration(totalSeconds: number): string {
  const whole = Math.max(0, Math.round(totalSeconds))
  if (whole < 60) return `${whole} s`
  const minutes = Math.floor(whole / 60)
  if (minutes < 60) return `${minutes} min`
  const hours = Math.floor(minutes / 60)
  if (hours < 48) return minutes % 60 === 0 ? `${hours} h` : `${hours} h ${minutes % 60} min`
  return `${Math.floor(hours / 24)} days`
}

const fullTime = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'long' })
const MILLISECONDS = {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  fractionalSecondDigits: 3,
} as const
const exactTime = new Intl.DateTimeFormat(undefined, MILLISECONDS)
const exactDate = new Intl.DateTimeFormat(undefined, {
  month: 'short',
  day: 'numeric',
  ...MILLISECONDS,
})
const clockTime = new Intl.DateTimeFormat(undefined, { timeStyle: 'short' })

export const full = (iso: string): string => fullTime.format(new Date(iso))
export const timeOfDay = (iso: string): string => clockTime.format(new Date(iso))
export const fullMs = (iso: string): string => exactDate.format(new Date(iso))
export const timeMs = (iso: string): string => exactTime.format(new Date(iso))

/** Returns `in 0:41`, `in 3 h 12 min` or, for a time that has passed, `now`. */
export function remaining(exactSeconds: number): string {
  const whole = Math.ceil(exactSeconds)
  if (whole <= 0) return 'now'
  if (whole >= 3_600) return `in ${duration(whole)}`
  return `in ${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, '0')}`
}
