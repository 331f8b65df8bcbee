import {
  type EntryEvent,
  type EntryEventKind,
  entryEventId,
} from '@integration-host/shared/contracts/provider-event'
import type { EntryCheck, EntryRow, OutsideState } from './book-entry.ts'

const KINDS: Readonly<Record<OutsideState, EntryEventKind>> = {
  ChangedOutside: 'changed',
  Voided: 'changed',
  Deleted: 'deleted',
  Missing: 'missing',
}

/** The maximum number of names of fields in an event. */
const MAX_CHANGED = 100

/** Returns the event of an object that was changed from outside or is gone. `at` is the time of the change, epoch ms. */
export function entryEventOf(
  entry: EntryRow,
  { State, Changed }: Omit<EntryCheck, 'EntryID'>,
  at: number,
): EntryEvent {
  const event = {
    Realm: entry.Realm,
    Entity: entry.Entity,
    EntityID: entry.EntityID,
    Kind: KINDS[State as OutsideState],
    State,
    Changed: (Changed ?? []).slice(0, MAX_CHANGED),
    At: new Date(at).toISOString(),
    EntryID: entry.EntryID,
    Process: entry.Process,
    TransactionID: entry.TransactionID,
    ReplayID: entry.ReplayID,
    StepName: entry.StepName,
  }
  return { Id: entryEventId(event), ...event }
}
