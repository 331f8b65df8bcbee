/** What the member `WaitingFor` of a run says. */
import { CredentialName, realmOf } from './realm.ts'

/** What a run waits for, and its name: a credential, a slot (`concurrency`), or a place such as `event:<name>`. */
export interface Waiting {
  readonly kind: string
  readonly name: string
}

/**
 * Returns what a run waits for; `null` if it waits for nothing that is named. A later release may add kinds with a colon,
 * which are returned as they are, so only a name without a colon is that of a credential.
 */
export function readWaitingFor(waitingFor: string | null): Waiting | null {
  if (waitingFor === null) return null
  if (waitingFor === 'concurrency') return { kind: 'concurrency', name: '' }
  const colon = waitingFor.indexOf(':')
  return colon === -1
    ? { kind: 'credential', name: waitingFor }
    : { kind: waitingFor.slice(0, colon), name: waitingFor.slice(colon + 1) }
}

/**
 * Returns the realm of the company that a run waits for: for its credential, its books or its resume; `null` if the run
 * does not wait for a company.
 */
export function realmWaitedFor(waitingFor: string | null): string | null {
  const waiting = readWaitingFor(waitingFor)
  if (waiting?.kind === 'books' || waiting?.kind === 'paused') return waiting.name
  return waiting?.kind === 'credential' && CredentialName.safeParse(waiting.name).success
    ? realmOf(waiting.name)
    : null
}
