import { serverNow } from './server-clock.ts'

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

export const isUnattended = (): boolean => Date.now() - attendedAt > UNATTENDED_MS

/** The session is confirmed this long before it must be, if this interrupts nothing. */
const EARLY_MS = 5 * 60_000
export const CONFIRM_CHECK_MS = 15_000

/**
 * Lets the OpenID provider confirm the session. The provider shows no page of its own: it sends the browser back to this
 * page, or reports that it cannot confirm the person. Then the session ends. The returned promise never settles.
 */
export function confirmSession(): Promise<never> {
  sessionStorage.setItem(KEY, String(attendedAt))
  const { pathname, search, hash } = location
  location.replace(`/sign-in/oidc?to=${encodeURIComponent(pathname + search + hash)}`)
  return new Promise(() => undefined)
}

/** Returns whether the session should be confirmed now. `checkAt` is the time at which it must be confirmed. */
export const isConfirmationDue = (checkAt: string): boolean =>
  serverNow() >= Date.parse(checkAt) - EARLY_MS && !isUnattended() && !isBusy()

/** Returns whether the person has a dialog open, or may be writing a text. */
const isBusy = (): boolean =>
  document.querySelector('dialog[open]') !== null ||
  document.activeElement?.matches('input, textarea, select') === true
