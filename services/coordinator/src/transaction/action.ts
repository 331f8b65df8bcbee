/**
 * The action log: which key and person queued, replayed, resumed or cancelled which run, or paused or resumed which
 * process, and why. An entry never changes.
 *
 * A1  A change is committed together with its entry: there is neither without the other.
 * A2  An action that the store rejects is recorded with the code of the rejection. It has changed nothing, so its
 *     entry is committed on its own.
 * A3  An entry names things and contains no business data.
 */
import type { ActionView } from '@integration-host/shared/contracts/action'
import { versionMoved } from './errors.ts'

export type ActionKind =
  | 'queue'
  | 'replay'
  | 'resume'
  | 'cancel'
  | 'pause'
  | 'requeue_dead_letter'
  | 'delete_dead_letter'
  | 'delete_dead_letters'
  | 'erase'

/** An entry of the action log. */
export type Action = Readonly<ActionView>

/** Who acts: the id of a service key, and the person for whom its holder acts. */
export interface Actor {
  readonly keyId: string
  readonly person: string | null
}

/** The circumstances of an action on one run or process. */
export interface Act {
  readonly by: Actor
  readonly reason: string | null
  /** The action is rejected with `version_moved` if the run has another version; `null` allows every version. */
  readonly ifVersion: number | null
}

/** @throws {IntegrationError} `version_moved` if the action requires another version of the run. */
export function requireVersion(
  { Version }: { readonly Version: number },
  { ifVersion }: Act,
): void {
  if (ifVersion !== null && ifVersion !== Version) throw versionMoved(Version)
}

/** An action that the store rejected, and the code of the rejection. */
export interface RejectedAction extends Pick<
  Action,
  'Process' | 'TransactionID' | 'ReplayID' | 'Outcome'
> {
  readonly kind: ActionKind
  readonly act: Act
}

export interface ActionFilter {
  readonly process?: string | undefined
  readonly transactionId?: string | undefined
  /** Only entries with a smaller `ID`. */
  readonly before?: number | undefined
  readonly limit: number
}

/** Returns a new entry without its `ID`. */
export const entryOf = (
  kind: ActionKind,
  { by, reason }: Pick<Act, 'by' | 'reason'>,
  what: Pick<Action, 'Process'> & Partial<Pick<Action, 'TransactionID' | 'ReplayID' | 'Realm'>>,
  { now, outcome = 'done' }: { readonly now: number; readonly outcome?: string },
): Omit<Action, 'ID'> => ({
  At: new Date(now).toISOString(),
  KeyID: by.keyId,
  Person: by.person,
  Action: kind,
  Process: what.Process,
  TransactionID: what.TransactionID ?? null,
  ReplayID: what.ReplayID ?? null,
  Realm: what.Realm ?? null,
  Reason: reason,
  Outcome: outcome,
})
