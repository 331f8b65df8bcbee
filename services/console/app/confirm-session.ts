/**
 * Lets the OpenID provider confirm the session of the person. The provider shows no page of its own: it sends the browser
 * back to this page, or reports that it cannot confirm the person. Then the session ends.
 */
import { isUnattended, keepAttendance } from './attendance.ts'
import { serverNow } from './server-clock.ts'

/** The session is confirmed this long before it must be, if this interrupts nothing. */
const EARLY_MS = 5 * 60_000
export const CONFIRM_CHECK_MS = 15_000

/** Sends the browser to the provider, and from there back to this page. The returned promise never settles. */
export function confirmSession(): Promise<never> {
  keepAttendance()
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
