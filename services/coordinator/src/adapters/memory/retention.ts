import { WEBHOOK_PROCESS } from '@integration-host/shared/contracts/events'
import { entryOf } from '../../run/action.ts'
import type { ErasurePosition, Erasures, ErasureScope } from '../../run/erasure.ts'
import {
  COUNTED,
  FILES_LEFT,
  FIRST_END,
  type Retention,
  type RetentionPolicy,
} from '../../run/retention.ts'
import { keyText, type Run, type RunKey, runKey } from '../../run/run.ts'
import { isOver } from '../../run/status.ts'
import * as transitions from '../../run/transitions.ts'
import { erased, type StoredRun } from '../../run/transitions.ts'
import { REMOVAL_WEBHOOK } from '../../webhook/webhook.ts'
import { erasedEntries } from './entries.ts'
import { forgottenFamilies, purgedFamilies } from './families.ts'
import { INSTALLATION, keyOf, type RecordChange } from './records.ts'
import type { Entry, MemoryStore } from './store.ts'

/** Returns the row that names an ended run whose files may remain. */
export function filesLeftOf(run: RunKey): RecordChange {
  const Name = `${FILES_LEFT.prefix}${encodeURIComponent(keyText(run))}`
  return { table: INSTALLATION, key: keyOf([Name]), row: { Name, Value: [runKey(run)] } }
}

/** The retention of the memory source. */
export function createMemoryRetention(store: MemoryStore, now: () => number): Retention {
  const { table, records, commit } = store

  const countedUp = (action: keyof typeof COUNTED, process: string): RecordChange => {
    const Name = COUNTED[action] + process
    const place = { table: INSTALLATION, key: keyOf([Name]) }
    const known = records.get(place.table, place.key) as { readonly Value: number } | undefined
    return { ...place, row: { Name, Value: (known?.Value ?? 0) + 1 } }
  }
  /**
   * Builds and commits the entries one after another. Each entry adds 1 to a count and contains the new count, so it
   * can be built only after the previous entry was applied.
   */
  async function commitCounted(entries: readonly (() => Entry)[]): Promise<number> {
    await Promise.all(entries.map((entry) => commit(entry())))
    return entries.length
  }

  const hasKeptParent = ({ Parent }: Run): boolean =>
    Parent !== undefined && table.get(Parent)?.header.PurgedAt === null
  const mayGo = (run: Run, policy: RetentionPolicy): boolean =>
    run.PurgedAt === null &&
    !hasKeptParent(run) &&
    table
      .runsOf(run.Process, run.TransactionID)
      .every((one) => one.header.PurgedAt !== null || transitions.isOld(one, policy, now()))

  return {
    async purgeable(policy, _after, limit) {
      const runs: RunKey[] = []
      let oldestMs: number | null = null
      for (const { header } of table.all()) {
        const { Process, CompletedAt, PurgedAt } = header
        if (Process !== policy.process || CompletedAt === null || PurgedAt !== null) continue
        oldestMs = Math.max(oldestMs ?? 0, now() - Date.parse(CompletedAt))
        if (runs.length < limit && mayGo(header, policy)) runs.push(runKey(header))
      }
      // Every page starts the search from the beginning, because a purged run is not found again.
      return { runs, next: runs.length === limit ? FIRST_END : null, oldestMs }
    },
    async purge(policy, runs) {
      const purged = runs
        .map((key) => table.get(key))
        .filter((stored) => stored !== undefined)
        .filter(({ header }) => mayGo(header, policy))
      return commitCounted(
        purged.map((stored) => () => ({
          run: transitions.purged(stored, now()),
          records: [
            countedUp('purge', stored.header.Process),
            filesLeftOf(stored.header),
            ...purgedFamilies(store, stored.header, now()),
          ],
        })),
      )
    },

    async forget(dedupeMs, limit) {
      const isForgettable = ({ header }: StoredRun): boolean => {
        const { PurgedAt } = header
        if (PurgedAt === null || Date.parse(PurgedAt) >= now() - dedupeMs) return false
        const left = filesLeftOf(header)
        return records.get(left.table, left.key) === undefined
      }
      const old = table
        .all()
        .filter(
          (stored) =>
            isForgettable(stored) &&
            table.runsOf(stored.header.Process, stored.header.TransactionID).every(isForgettable),
        )
      // More ids than the limit may be deleted, because all runs of the last transaction are deleted together.
      const transactions = [
        ...Map.groupBy(old, ({ header: { Process, TransactionID } }) =>
          JSON.stringify([Process, TransactionID]),
        ).values(),
      ].slice(0, limit)
      const forgotten = new Set(transactions.flat().map(({ header }) => keyText(header)))
      const families = forgottenFamilies(store, forgotten).map((record) => commit({ record }))
      const [count] = await Promise.all([
        commitCounted(
          transactions.flat().map(({ header }) => () => ({
            forgotten: runKey(header),
            record: countedUp('forget', header.Process),
          })),
        ),
        ...families,
      ])
      return count
    },
  }
}

/** Erases runs of the memory source. `now` returns epoch ms. */
export function createMemoryErasures(
  { table, log, records, commit }: Pick<MemoryStore, 'table' | 'log' | 'records' | 'commit'>,
  { now, leaseMs }: { readonly now: () => number; readonly leaseMs: number },
): Erasures {
  const isErasable = ({ ErasedAt, PurgedAt }: Run): boolean =>
    ErasedAt === null && PurgedAt === null
  const hasEnded = ({ Status, InDoubt, CompletedAt }: Run): boolean =>
    isOver(Status) &&
    !(
      (Status === 'Cancelled' || Status === 'UndoFailed') &&
      InDoubt &&
      Date.parse(CompletedAt ?? '') > now() - leaseMs
    )
  return {
    async erasable(scope, { after, limit }) {
      const isInScope = scopeTest(scope, table)
      const page = table
        .all()
        .map(({ header }) => header)
        .filter((header) => isErasable(header) && isInScope(header) && !isActiveRemoval(header))
        .filter((header) => after === null || compare(header, after) > 0)
        .toSorted(compare)
        .slice(0, limit)
      const ended = page.filter(hasEnded)
      const last = page.at(-1)
      return {
        runs: ended.map(({ Version, ...header }) => ({ ...runKey(header), Version })),
        notEnded: page.length - ended.length,
        next:
          last === undefined || page.length < limit
            ? null
            : { ...runKey(last), CreatedAt: last.CreatedAt },
      }
    },
    async erase(runs, act) {
      const entries = runs
        .map(({ Version, filesLeft, ...key }) => ({ stored: table.get(key), Version, filesLeft }))
        .flatMap(({ stored, Version, filesLeft }) =>
          stored !== undefined && isErasable(stored.header) && stored.header.Version === Version
            ? [{ stored, filesLeft }]
            : [],
        )
        .map(({ stored, filesLeft }) => ({
          run: erased(stored, now()),
          records: [
            ...erasedEntries(records, stored.header),
            ...(filesLeft === true ? [filesLeftOf(stored.header)] : []),
          ],
          action: log.next(entryOf('erase', act, stored.header)),
        }))
      await commit(...entries)
      return entries.length
    },
  }
}

/** Whether the run still has to deliver a webhook that reports the removal of a credential. */
const isActiveRemoval = ({ Process, TransactionID, Status }: Run): boolean =>
  Process === WEBHOOK_PROCESS && TransactionID.startsWith(REMOVAL_WEBHOOK) && !isOver(Status)

function scopeTest(scope: ErasureScope, table: Pick<MemoryStore['table'], 'get'>) {
  if (!('Ids' in scope))
    return ({ Process, Realm }: Run): boolean =>
      Realm === scope.Realm && (scope.Process === null || Process === scope.Process)
  const ids = new Set(scope.Ids)
  // A transaction is erased with its children, and with theirs.
  const isInScope = ({ Process, TransactionID, Parent }: Run): boolean => {
    if (Process === scope.Process && ids.has(TransactionID)) return true
    const parent = Parent === undefined ? undefined : table.get(Parent)
    return parent !== undefined && isInScope(parent.header)
  }
  return isInScope
}

const text = ({ CreatedAt, Process, TransactionID }: ErasurePosition): string =>
  JSON.stringify([CreatedAt, Process, TransactionID])

/**
 * Orders runs by time. Any stable total order would do, because the order is used only to split the runs into pages.
 */
function compare(a: ErasurePosition, b: ErasurePosition): number {
  const [left, right] = [text(a), text(b)]
  return left === right ? a.ReplayID - b.ReplayID : left < right ? -1 : 1
}
