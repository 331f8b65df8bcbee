/**
 * Tells whether a person uses the page. If a person has done nothing for a minute, the page sends its requests by itself,
 * and they do not prolong the session.
 */
const UNATTENDED_MS = 60_000

let attendedAt = Date.now()

/** Notices the input of a person. Called once, before the first page is shown. */
export function followAttendance(): void {
  for (const input of ['pointerdown', 'keydown'])
    window.addEventListener(input, () => void (attendedAt = Date.now()), { capture: true })
}

export const isUnattended = (): boolean => Date.now() - attendedAt > UNATTENDED_MS
