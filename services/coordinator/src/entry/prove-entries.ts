/**
 * Compares the entries of a company with the objects that a sweep of its change feed reads.
 *
 * P1  Only the newest entry of an object is compared, so a write of another run is never a change from outside.
 * P2  An event is published before its state is stored. After a crash in between it is published again with the same id.
 * P3  A fresh difference is not reported while runs of the company may have written what no entry shows yet: the next
 *     sweep reads it again.
 * P4  An object is missing only if no sweep has ever seen it, and two sweeps have read the time of its creation
 *     completely. The change feed contains changed objects only, so absence says nothing about an object that was seen.
 *     A sweep has also seen an object that it could not compare yet (P3) or not at all.
 */
import { installationValues } from '../records/installation.ts'
import { iso } from '../records/records.ts'
import type { RunPage } from '../run/run-search.ts'
import type { TransactionSource } from '../run/transaction-source.ts'
import {
  countEntries,
  ENTRIES,
  type EntryCheck,
  type EntryRow,
  isOutside,
  type OutsideState,
  rankOf,
} from './book-entry.ts'
import type { EntryKeeper } from './entry-keeper.ts'
import {
  type EntryEvent,
  entryEventId,
  type EntryEventKind,
} from '@integration-host/shared/contracts/provider-event'
import type { EntryState } from '@integration-host/shared/contracts/company'

/** An object of the books, or the deletion of one. */
interface SeenObject {
  readonly isDeleted: boolean
  readonly content: Readonly<Record<string, unknown>>
}

export interface ProvenObject extends SeenObject {
  readonly entity: string
  readonly id: string
  /** The time at which the object was last changed or deleted, epoch ms. */
  readonly changedAt: number
}

export interface ProofDeps {
  readonly source: Pick<TransactionSource, 'checkEntries' | 'newestEntries' | 'records' | 'search'>
  readonly keeper: Pick<EntryKeeper, 'changedFields'>
  /** Resolves when the event is stored for all that receive it. */
  readonly publish: (event: EntryEvent) => Promise<void>
}

/** What a comparison of objects leaves open. */
export interface Uncompared {
  /** The time, epoch ms, of the earliest change that must be read again (P3); `null` if there is none. */
  readonly readAgainFrom: number | null
  /** The ids of the entries whose objects exist or are deleted, but say nothing about the entry now. */
  readonly seen: readonly string[]
}

/** The result of a comparison. */
type Found = Omit<EntryCheck, 'EntryID'>

/** The time range that a sweep has read completely, except for some entities. */
interface ReadRange {
  readonly From: string
  readonly Until: string
  readonly Except: readonly string[]
}

/** How much the clocks of the provider and of this installation may differ. */
const CLOCK_MS = 5 * 60_000
/** How recent a difference must be so that a run that has not recorded its call yet may have caused it. */
const FRESH_MS = 5 * 60_000
/** The change feed accepts a time within the last 30 days only. */
const FEED_MS = 29 * 86_400_000
const MAX_UNSEEN = 10_000
/** The built-in processes that only read. The run of the sweep itself is one of them. */
const READERS: ReadonlySet<string> = new Set(['ChangeFeed', 'ChangeLook'])
/** The statuses of runs that may have made a call whose result is not recorded. */
const IN_FLIGHT = ['Running', 'Retrying', 'Undoing'] as const
/** How many of these runs are read at once: those that read can be many, if many runs wait for changes. */
const RUNS_PAGE = 100

export type EntryProof = ReturnType<typeof createEntryProof>

export function createEntryProof({ source, keeper, publish }: ProofDeps) {
  const ranges = installationValues<ReadRange>(source, 'read:')

  /** Returns entries of a company whose created objects were never seen in the books, the oldest first. */
  const unseen = (Realm: string, limit: number): Promise<readonly EntryRow[]> =>
    source.records(ENTRIES).page({
      where: { Realm, State: 'Recorded', Operation: 'create', CheckedAt: null },
      by: ['RecordedAt', 'EntryID'],
      limit,
    })

  async function mayHaveUnrecordedWrites(realm: string): Promise<boolean> {
    let page: RunPage = { runs: [], next: null }
    do {
      page = await source.search({
        process: null,
        filter: { realm: [realm], status: [...IN_FLIGHT], children: true },
        order: 'created',
        visible: { realms: ['*'], processes: ['*'] },
        after: page.next,
        limit: RUNS_PAGE,
      })
      if (page.runs.some(({ Process }) => !READERS.has(Process))) return true
    } while (page.next !== null)
    return false
  }

  /** Stores the results, after it has published what they report. */
  async function settle(entry: EntryRow, check: Found, at: number): Promise<EntryCheck> {
    const isKnown =
      entry.State === check.State && JSON.stringify(entry.Changed) === JSON.stringify(check.Changed)
    if (isOutside(check.State) && !isKnown) await publish(entryEventOf(entry, check, at))
    return { EntryID: entry.EntryID, ...check }
  }

  return {
    /** Returns the entities of the objects of a company that have entries. */
    async entities(realm: string): Promise<readonly string[]> {
      const counts = await countEntries(source, { realm })
      return [...new Set(counts.map(({ Entity }) => Entity))]
    },

    /** Returns from which time a sweep has to read, so that it can see every entry that was never seen; epoch ms. */
    async readFrom(realm: string, begin: number, now: number): Promise<number> {
      const [oldest] = await unseen(realm, 1)
      if (oldest === undefined) return begin
      const from = Date.parse(oldest.RecordedAt) - CLOCK_MS
      return Math.min(begin, Math.max(from, now - FEED_MS))
    },

    /** Compares objects with their entries. */
    async compare(
      realm: string,
      objects: readonly ProvenObject[],
      now: number,
    ): Promise<Uncompared> {
      const entries = await source.newestEntries(realm, objects)
      const known = new Map(entries.map((entry) => [`${entry.Entity} ${entry.EntityID}`, entry]))
      let readAgainFrom: number | null = null
      const seen: string[] = []
      const checks: EntryCheck[] = []
      let isBusy: boolean | null = null
      for (const object of objects) {
        const entry = known.get(`${object.entity} ${object.id}`)
        if (entry === undefined) continue
        const found = await compareEntry(entry, object, () =>
          keeper.changedFields(entry, object.content),
        )
        if (found === null) {
          seen.push(entry.EntryID)
          continue
        }
        if (isOutside(found.State) && object.changedAt >= now - FRESH_MS) {
          isBusy ??= await mayHaveUnrecordedWrites(realm)
          if (isBusy) {
            readAgainFrom = Math.min(readAgainFrom ?? Infinity, object.changedAt)
            seen.push(entry.EntryID)
            continue
          }
        }
        checks.push(await settle(entry, found, object.changedAt))
      }
      await source.checkEntries(checks)
      return { readAgainFrom, seen }
    },

    /**
     * Reports entries as missing (P4), and stores what the sweep has read. `except` are the entities that it has not read,
     * `seen` the ids of the entries that `compare` has returned as such.
     */
    async finish(
      realm: string,
      {
        from,
        until,
        except,
        seen,
      }: {
        from: number
        until: number
        except: readonly string[]
        seen: ReadonlySet<string>
      },
    ): Promise<void> {
      const before = await ranges.get(realm)
      const entries =
        before === undefined
          ? []
          : (await unseen(realm, MAX_UNSEEN)).filter(({ EntryID }) => !seen.has(EntryID))
      const checks: EntryCheck[] = []
      for (const entry of entries) {
        const at = Date.parse(entry.RecordedAt)
        const { From, Until, Except } = before ?? { From: '', Until: '', Except: [] }
        const isRead =
          at - CLOCK_MS >= Math.max(from, Date.parse(From)) &&
          at <= Math.min(until, Date.parse(Until)) &&
          !except.includes(entry.Entity) &&
          !Except.includes(entry.Entity)
        if (isRead) checks.push(await settle(entry, { State: 'Missing', Changed: null }, at))
      }
      await source.checkEntries(checks)
      const range = { From: iso(from), Until: iso(until), Except: except }
      await ranges.change(realm, () => range)
    },

    /** Forgets what was read of a company that was removed. */
    async forget(realm: string): Promise<void> {
      await ranges.change(realm, () => undefined)
    },
  }
}

/**
 * Returns what an object says about its newest entry; `null` if it says nothing, because it is older than the entry, or
 * because the fields of the entry cannot be compared.
 *
 * @param changedFields returns the paths of the written fields that differ, or `null`
 * @see docs/intuit.md, "Open": how the change feed shows a voided object
 */
async function compareEntry(
  entry: EntryRow,
  { isDeleted, content }: SeenObject,
  changedFields: () => Promise<readonly string[] | null>,
): Promise<Found | null> {
  const is = (State: EntryState, Changed: readonly string[] | null = null) => ({ State, Changed })
  if (isDeleted) return is(entry.Operation === 'delete' ? 'Verified' : 'Deleted')
  const { SyncToken } = content
  const seen = rankOf({
    Operation: 'update',
    SyncToken: typeof SyncToken === 'string' ? SyncToken : null,
  })
  // A response may be older than the write. Nothing becomes of an object that was deleted.
  if (seen < rankOf(entry)) return null
  if (SyncToken === entry.SyncToken) return is('Verified')
  if (isVoided(content)) return is(entry.Operation === 'void' ? 'Verified' : 'Voided')
  const changed = await changedFields()
  if (changed === null) return null
  return changed.length === 0 ? is('Verified') : is('ChangedOutside', changed)
}

/** Intuit has no status for it: amounts are zero, and `Voided` is put before the note. */
const isVoided = ({ TotalAmt, PrivateNote }: SeenObject['content']): boolean =>
  TotalAmt === 0 && typeof PrivateNote === 'string' && /^voided\b/i.test(PrivateNote)

const KINDS: Readonly<Record<OutsideState, EntryEventKind>> = {
  ChangedOutside: 'changed',
  Voided: 'changed',
  Deleted: 'deleted',
  Missing: 'missing',
}

/** The maximum number of names of fields in an event. */
const MAX_CHANGED = 100

/** Returns the event of an object that was changed from outside or is gone. `at` is the time of the change, epoch ms. */
function entryEventOf(entry: EntryRow, { State, Changed }: Found, at: number): EntryEvent {
  const { Realm, Entity, EntityID, EntryID, Process, TransactionID, ReplayID, StepName } = entry
  const event = {
    Realm,
    Entity,
    EntityID,
    Kind: KINDS[State as OutsideState],
    State,
    Changed: (Changed ?? []).slice(0, MAX_CHANGED),
    At: iso(at),
    EntryID,
    Process,
    TransactionID,
    ReplayID,
    StepName,
  }
  return { Id: entryEventId(event), ...event }
}
