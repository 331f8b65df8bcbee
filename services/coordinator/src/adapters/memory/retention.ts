import {
  COUNTED,
  FILES_LEFT,
  FIRST_END,
  type Retention,
  type RetentionPolicy,
} from '../../run/retention.ts'
import { keyText, type Run, type RunKey, runKey } from '../../run/run.ts'
import * as transitions from '../../run/transitions.ts'
import type { StoredRun } from '../../run/transitions.ts'
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
      const runs = []
      for (const { header } of table.all()) {
        if (header.Process === policy.process && mayGo(header, policy)) runs.push(runKey(header))
        // Every page starts the search from the beginning, because a purged run is not found again.
        if (runs.length === limit) return { runs, next: FIRST_END }
      }
      return { runs, next: null }
    },
    async purge(policy, runs) {
      const purged = runs
        .map((key) => table.get(key))
        .filter((stored) => stored !== undefined)
        .filter(({ header }) => mayGo(header, policy))
      const families = purged.flatMap(({ header }) => purgedFamilies(store, header, now()))
      await commit(...families)
      return commitCounted(
        purged.map((stored) => () => ({
          run: transitions.purged(stored, now()),
          records: [countedUp('purge', stored.header.Process), filesLeftOf(stored.header)],
        })),
      )
    },

    async forget(dedupeMs, limit) {
      const isForgettable = ({ header }: StoredRun): boolean => {
        const { PurgedAt } = header
        const left = filesLeftOf(header)
        const areFilesLeft = records.get(left.table, left.key) !== undefined
        return PurgedAt !== null && Date.parse(PurgedAt) < now() - dedupeMs && !areFilesLeft
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
      await commit(...forgottenFamilies(store, forgotten))
      return commitCounted(
        transactions.flat().map(({ header }) => () => ({
          forgotten: runKey(header),
          record: countedUp('forget', header.Process),
        })),
      )
    },

    async oldestKept(processes) {
      const oldest = new Map<string, number>()
      for (const { header } of table.all()) {
        const { Process, CompletedAt, PurgedAt } = header
        if (CompletedAt === null || PurgedAt !== null || !processes.includes(Process)) continue
        const ageMs = now() - Date.parse(CompletedAt)
        oldest.set(Process, Math.max(ageMs, oldest.get(Process) ?? 0))
      }
      return oldest
    },
  }
}
