/**
 * Determines whether a person uses the page. After a minute without input, the page sends its requests without the
 * person, and such requests do not prolong the session.
 */
const UNATTENDED_MS = 60_000

let attendedAt = Date.now()

/** Records the time of each input of a person. Called once, before the first page is shown. */
export function followAttendance(): void {
  for (const input of ['pointerdown', 'keydown'])
    window.addEventListener(input, () => void (attendedAt = Date.now()), { capture: true })
}

export const isUnattended = (): boolean => Date.now() - attendedAt > UNATTENDED_MS
