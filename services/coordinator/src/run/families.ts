/**
 * The children of runs: `.forEach(name, process)` of a process.
 *
 * F1  A family is the children that one place of one run has started. Its row counts them. The counts change in the
 *     statement that ends or resumes a child, whatever this statement is.
 * F2  The children of a page are stored together with the transition of their parent. A repetition finds them by their
 *     ids. A run of such an id that has another parent, or none, is never adopted: the parent fails.
 * F3  The parent waits without a lease and without a message. When no child is active, the replica that has ended the last
 *     child moves the parent on in a statement of its own. If that replica was lost, the sweeper does so.
 * F4  A child beyond `concurrent` waits for its turn. It is made due by the statement that ends a sibling, and published
 *     afterwards by the replica that has ended the sibling, or else by the sweeper.
 * F5  What happens to the children after the end of their parent is done once (`Cascaded`), so a child that is resumed
 *     by itself afterwards is left alone.
 */
import type { Json } from './json-normalization.ts'
import type { Transition } from './progress.ts'
import type { Run, RunKey } from './run.ts'
import { isOver, isWaitingForChildren } from './status.ts'
import type { Lease, ProcessOutline, RunState } from './transaction-source.ts'
import { UNDO_CANCELLED } from './transitions.ts'

/** The maximum number of children that one transition of the parent stores, resumes or begins to undo. */
export const CHILDREN_PER_PAGE = 1_000
/** How many runs may stand above each other: a run with so many ancestors cannot have children. */
export const MAX_FAMILY_DEPTH = 5
/** The maximum number of failed children that the result of a place names. */
export const MAX_FAILED_IDS = 100
/** The time after which the sweeper looks at a family to which nothing has happened. */
export const FAMILY_RECHECK_MS = 300_000
/** The time after which the sweeper looks again at a family for which something is left to do. */
export const FAMILY_RETRY_MS = 15_000
/** The time after which the sweeper would publish a run that waits for its children or for its turn: never. */
export const NEVER_SWEPT_MS = 315_360_000_000

/** The error class of a run of whose children too many have failed. */
export const CHILDREN_FAILED = 'children_failed'
/** The error class of a run whose list has the id of a run that is not its child. */
export const CHILD_CONFLICT = 'child_conflict'
export const CHILDREN_TOO_DEEP = 'children_too_deep'
/** The error class of a child that was cancelled because its parent has ended, or because too many siblings have failed. */
export const PARENT_ENDED = 'parent_ended'
export const PARENT_ENDED_TEXT =
  'the parent has ended, or too many of its children have failed; a resume of the parent resumes this run'

/** A place of a run at which it has started children. */
export interface FamilyKey extends RunKey {
  readonly Place: string
}

/** Returns a text that identifies a family, for use as a map key. */
export const keyOfFamily = ({ Process, TransactionID, ReplayID, Place }: FamilyKey): string =>
  JSON.stringify([Process, TransactionID, ReplayID, Place])

/** The row of a family. */
export interface Family extends FamilyKey {
  readonly ChildProcess: string
  /** The replay whose children these are: an earlier one if a replay has copied the place. */
  readonly OfReplayID: number
  /** How the ids of the children begin. The id of the item follows. */
  readonly Prefix: string
  /** The length of the list, and how many of its children are stored. */
  readonly Total: number
  readonly Stored: number
  /** How many children have not ended, and how many of these wait for their turn. */
  readonly Pending: number
  readonly Waiting: number
  /** How many children have ended without being completed, and how many may. */
  readonly Failed: number
  readonly Tolerated: number
  readonly Concurrent: number | null
  readonly Cascaded: boolean
}

/** A child of a page, as it is stored. */
export interface NewChild {
  readonly TransactionID: string
  /** The position in the list, from 0. */
  readonly Item: number
  readonly InitialData: Json
  readonly Realm: string | null
  readonly ConcurrencyKey: string | null
}

/** A page of the list of a place. */
export interface ChildrenPage extends Pick<
  Family,
  'Place' | 'Prefix' | 'Total' | 'Tolerated' | 'Concurrent'
> {
  /** The process of the children. */
  readonly process: ProcessOutline
  readonly children: readonly NewChild[]
}

/** What the source finds before it records the transition of the parent. */
export interface StoredPage {
  /** The ids of the page that belong to other runs. If there are any, or the parent is too deep, nothing is stored. */
  readonly conflicts: readonly string[]
  readonly isTooDeep: boolean
  /** Whether children that had failed before the parent was resumed still have to be resumed. */
  readonly hasMore: boolean
}

/** What the source finds when a run that is being undone gets to the place. */
export interface UndonePage {
  /** `null` if the place has started no children. */
  readonly family: Family | null
  /** Whether more completed children have to be undone. */
  readonly hasMore: boolean
  /** How many children have failed to be undone. */
  readonly undoFailed: number
}

export interface RecordedPage {
  readonly run: RunState
  /** The children that are due now. */
  readonly due: readonly (RunState & Pick<Run, 'Realm'>)[]
}

/** A family with what decides about it. */
export interface FamilyLook {
  readonly family: Family
  /** The run that waits for the family or has ended; `null` if it does not exist any more. */
  readonly parent: Pick<
    Run,
    'Status' | 'StepName' | 'WaitingFor' | 'ErrorClass' | 'ReplayID' | 'PurgedAt'
  > | null
  /** The ids of the first items whose children have failed; empty unless no child is active. */
  readonly failed: readonly string[]
}

/** A place at which runs have children, in a process that is loaded. */
export interface FamilyPlace {
  readonly process: string
  readonly place: string
  /** The place after it; `null` if the run is completed with it. */
  readonly next: string | null
  readonly undoesFailure: boolean
}

/** How a parent that waits for its children goes on. */
export interface Join extends FamilyKey {
  readonly kind: 'completed' | 'failed' | 'undo' | 'due'
  readonly next: string | null
  /** The data of the place, a {@link ChildrenResult}. */
  readonly data: Json
  readonly error: string | null
}

/** The data of a place after its children have ended. */
export type ChildrenResult = {
  readonly total: number
  readonly completed: number
  readonly failedCount: number
  /** The ids of the first items whose children have failed, at most 100. */
  readonly failed: readonly string[]
}

/** Which children are cancelled: those that have not started, or all that are active. */
export interface CancelChildren extends FamilyKey {
  readonly which: 'not_started' | 'active'
  /** Whether the parent has ended. If nothing is left to cancel, the family is done. */
  readonly isCascade: boolean
}

/** A child as its parent reads it. */
export interface ChildRow extends RunKey {
  /** The id of the item from which the child was made. */
  readonly ItemID: string
  readonly Status: Run['Status']
  readonly StepName: string
  readonly Realm: string | null
  readonly Item: number
  readonly ErrorClass: string | null
  readonly LastError: string | null
  /** The data of the last place of the child; `null` unless it is completed. */
  readonly Data: Json
}

/** Families by what has happened: children or parents that have ended, or the overdue families. */
export type WhichFamilies = { readonly ended: readonly RunKey[] } | { readonly limit: number }

/** The part of the port `TransactionSource` that starts, counts and joins children. */
export interface Families {
  /**
   * Stores a page of children, resumes those that had failed before the parent was resumed, and records the transition of
   * the parent that `choose` returns, all under the lease of the parent. Returns `null` if the lease was lost.
   */
  recordChildren(
    lease: Lease,
    page: ChildrenPage,
    choose: (stored: StoredPage) => Transition,
  ): Promise<RecordedPage | null>
  /** Begins to undo the completed children of a place, and records the transition of the parent. */
  recordUndoOfChildren(
    lease: Lease,
    choose: (undone: UndonePage) => Transition,
  ): Promise<RecordedPage | null>
  /** Returns the families to which these runs belong or that they have started, or overdue families, and postpones those. */
  lookAtFamilies(which: WhichFamilies): Promise<readonly FamilyLook[]>
  /** Gives free turns, and returns the children that have got one and are to be published. */
  takeTurns(families: readonly FamilyKey[]): Promise<readonly (RunState & Pick<Run, 'Realm'>)[]>
  /**
   * Cancels at most `limit` children, and returns them. Fewer than `limit` means that none is left, and that the families
   * of ended or purged parents are done.
   */
  cancelChildren(families: readonly CancelChildren[], limit: number): Promise<readonly Run[]>
  /** Moves parents on that still wait for children of which none is active, and returns them. */
  joinFamilies(joins: readonly Join[]): Promise<readonly Run[]>
  /** Returns children in the order of the list, after the position `after`. */
  children(
    key: FamilyKey,
    page: {
      readonly after: number
      readonly limit: number
      readonly statuses?: readonly Run['Status'][]
      readonly withData?: boolean
    },
  ): Promise<readonly ChildRow[]>
}

/** What has to be done for a family; the members are tried in this order. */
export interface FamilyWork {
  readonly cancels: CancelChildren | null
  readonly takesTurns: boolean
  readonly join: Join | null
  /** The family whose children are purged, because the parent is. */
  readonly purge: Family | null
}

const NOTHING: FamilyWork = { cancels: null, takesTurns: false, join: null, purge: null }

/** Decides what has to be done for a family. */
export function workOn(
  { family, parent, failed }: FamilyLook,
  places: readonly FamilyPlace[],
): FamilyWork {
  const { Process, TransactionID, OfReplayID, Place, Pending, Failed, Tolerated } = family
  const children = { Process, TransactionID, ReplayID: OfReplayID, Place }
  const takesTurns = family.Concurrent !== null && Pending > 0 && Failed <= Tolerated
  if (parent !== null && parent.PurgedAt !== null && parent.ReplayID === OfReplayID)
    return { ...NOTHING, purge: family }
  if (parent === null || isOver(parent.Status)) {
    if (family.Cascaded) return { ...NOTHING, takesTurns }
    const isCancelled = parent?.Status === 'Cancelled' || parent?.ErrorClass === UNDO_CANCELLED
    const which = isCancelled ? 'active' : 'not_started'
    return { ...NOTHING, cancels: { ...children, which, isCascade: true } }
  }
  if (!isWaitingForChildren(parent) || parent.StepName !== Place) return { ...NOTHING, takesTurns }
  const key = { Process, TransactionID, ReplayID: parent.ReplayID, Place }
  if (parent.Status === 'Undoing')
    return Pending > 0
      ? { ...NOTHING, takesTurns }
      : { ...NOTHING, join: { ...key, kind: 'due', next: null, data: null, error: null } }
  if (Pending > 0)
    return Failed > Tolerated
      ? { ...NOTHING, cancels: { ...children, which: 'not_started', isCascade: false } }
      : { ...NOTHING, takesTurns }
  const place = places.find((one) => one.process === Process && one.place === Place)
  if (place === undefined) return NOTHING
  const data = resultOf(family, failed)
  if (Failed <= Tolerated)
    return {
      ...NOTHING,
      join: { ...key, kind: 'completed', next: place.next, data, error: null },
    }
  return {
    ...NOTHING,
    join: {
      ...key,
      kind: place.undoesFailure ? 'undo' : 'failed',
      next: null,
      data,
      error: failedText(family, failed),
    },
  }
}

/** Returns the data of a place none of whose children is active. */
export const resultOf = (
  { Total, Stored, Pending, Failed }: Pick<Family, 'Total' | 'Stored' | 'Pending' | 'Failed'>,
  failed: readonly string[],
): Json => ({
  total: Total,
  completed: Stored - Pending - Failed,
  failedCount: Failed,
  failed: [...failed],
})

const SHOWN_IDS = 5

function failedText({ Failed, Total, Tolerated }: Family, failed: readonly string[]): string {
  const shown = failed.slice(0, SHOWN_IDS).join(', ')
  const more = failed.length > SHOWN_IDS || Failed > failed.length ? ', …' : ''
  return `${Failed} of ${Total} children have not been completed (${shown}${more}), and at most ${Tolerated} may fail. A resume resumes them`
}
