import { entryOf } from '../../transaction/action.ts'
import {
  FIRST_END,
  type Retention,
  RETENTION_KEY_ID,
  type RetentionPolicy,
} from '../../transaction/retention.ts'
import { type Run, runKey } from '../../transaction/run.ts'
import * as transitions from '../../transaction/transitions.ts'
import type { StoredRun } from '../../transaction/transitions.ts'
import type { Entry, MemoryStore, RetentionState } from './store.ts'

/** The maximum number of runs that `filesLeft` returns. */
const MAX_FILES_LEFT = 1_000

type Counted = keyof RetentionState['counts']

/** The retention of the memory source. Purging old runs needs no lease, because no other OS process uses the files. */
export function createMemoryRetention(store: MemoryStore, now: () => number): Retention {
  const { table, log, commit } = store
  let hasPurged = false

  const countsWith = (action: Counted, process: string): RetentionState => {
    const { counts, ...rest } = store.retention()
    const count = (counts[action][process] ?? 0) + 1
    return { ...rest, counts: { ...counts, [action]: { ...counts[action], [process]: count } } }
  }
  /**
   * Builds and commits the entries one after another. Each entry adds 1 to a count and contains the new count, so it
   * can be built only after the previous entry was applied.
   */
  async function commitCounted(entries: readonly (() => Entry)[]): Promise<number> {
    await Promise.all(entries.map((entry) => commit(entry())))
    hasPurged ||= entries.length > 0
    return entries.length
  }

  const mayGo = ({ Process, TransactionID, PurgedAt }: Run, policy: RetentionPolicy): boolean =>
    PurgedAt === null &&
    table
      .runsOf(Process, TransactionID)
      .every((run) => run.header.PurgedAt !== null || transitions.isOld(run, policy, now()))

  return {
    keepsByDefault: async () => store.retention().keepsByDefault,

    async beginPurge(_owner, _processes, everyMs) {
      const { passedAt } = store.retention()
      const lastPassMs = passedAt === null ? null : now() - passedAt
      return { kind: (lastPassMs ?? Infinity) >= everyMs ? 'begun' : 'waiting', lastPassMs }
    },
    continuePurge: async () => true,
    async endPurge() {
      const { keepsByDefault, counts } = store.retention()
      // The purge counts as completed only when the purged data is no longer in the files.
      if (hasPurged) await store.compact()
      hasPurged = false
      const actions = Object.entries(counts).flatMap(([action, byProcess]) =>
        Object.entries(byProcess).map(([Process, count]) =>
          log.next(
            entryOf(
              action as Counted,
              { by: { keyId: RETENTION_KEY_ID, person: null }, reason: `${count} runs` },
              { Process },
              { now: now() },
            ),
          ),
        ),
      )
      const retention = { keepsByDefault, passedAt: now(), counts: { purge: {}, forget: {} } }
      await commit({ retention }, ...actions.map((action) => ({ action })))
    },

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
      return commitCounted(
        runs
          .map((key) => table.get(key))
          .filter((stored) => stored !== undefined)
          .filter(({ header }) => mayGo(header, policy))
          .map((stored) => () => ({
            run: transitions.purged(stored, now()),
            retention: countsWith('purge', stored.header.Process),
          })),
      )
    },

    async filesLeft(process) {
      const runs = table
        .all()
        .filter(({ header, filesLeft }) => filesLeft === true && header.Process === process)
        .slice(0, MAX_FILES_LEFT)
        .map(({ header }) => runKey(header))
      return runs.length === 0 ? null : { id: process, runs }
    },
    async filesRemoved({ runs }) {
      await commit(
        ...runs
          .map((key) => table.get(key))
          .filter((stored) => stored !== undefined)
          .map((stored) => ({ run: transitions.withoutFiles(stored) })),
      )
    },

    async forget(dedupeMs, limit) {
      const isForgettable = ({ header: { PurgedAt }, filesLeft }: StoredRun): boolean =>
        PurgedAt !== null && Date.parse(PurgedAt) < now() - dedupeMs && filesLeft !== true
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
      return commitCounted(
        transactions.flat().map(({ header }) => () => ({
          forgotten: runKey(header),
          retention: countsWith('forget', header.Process),
        })),
      )
    },

    async forgetOperations(keptMs, limit) {
      const old = store.operations
        .all()
        .filter(({ FinishedAt }) => FinishedAt !== null && Date.parse(FinishedAt) < now() - keptMs)
        .slice(0, limit)
      await commit(...old.map(({ ID }) => ({ forgottenOperation: ID })))
      hasPurged ||= old.length > 0
      return old.length
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
