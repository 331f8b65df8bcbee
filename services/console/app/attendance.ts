/**
 * Determines whether a person uses the page. After a minute without input, the page marks its requests with the header
 * `Unattended`. Requests with this header do not prolong the session.
 */
const UNATTENDED_MS = 60_000
const KEY = 'attendedAt'

let attendedAt = Date.now()

/** Records the time of each input of a person. Called once, before any page is shown. */
export function followAttendance(): void {
  // A page that has been loaded again by itself is not attended by that.
  attendedAt = Number(sessionStorage.getItem(KEY) ?? attendedAt)
  sessionStorage.removeItem(KEY)
  for (const input of ['pointerdown', 'keydown'])
    window.addEventListener(input, () => void (attendedAt = Date.now()), { capture: true })
}

/** Called before the page leads to itself without the person. */
export const keepAttendance = (): void => sessionStorage.setItem(KEY, String(attendedAt))

export const isUnattended = (): boolean => Date.now() - attendedAt > UNATTENDED_MS
