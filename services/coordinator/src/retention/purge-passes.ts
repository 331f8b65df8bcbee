/**
 * The store of the retention passes: when each process was last purged, which replica purges now, and how many runs its
 * pass has purged and forgotten.
 */
import {
  installation,
  type InstallationLease,
  isAvailable,
  leaseOf,
} from '../records/installation.ts'
import { changeRow } from '../records/records.ts'
import { entryOf } from '../run/action.ts'
import { COUNTED, RETENTION_KEY_ID } from '../run/retention.ts'
import { LEASE_MS, type TransactionSource } from '../run/transaction-source.ts'

/**
 * The result of the request to begin a purge. `begun`: the caller may purge now. `waiting`: another owner is purging,
 * or the last pass ended too recently.
 */
export interface PurgeTurn {
  readonly kind: 'begun' | 'waiting'
  /**
   * The milliseconds since the last pass of a process ended. If the caller has several processes, this is the longest
   * of their times. `null` if at least one process has had no pass yet.
   */
  readonly lastPassMs: number | null
}

const NAME = 'Retention'
/** `Passed` has the time of the last purge of each process. */
const PASSES = installation<
  InstallationLease & { readonly Passed?: Readonly<Record<string, string>> }
>(NAME)

export type PurgePasses = ReturnType<typeof createPurgePasses>

export function createPurgePasses(source: Pick<TransactionSource, 'compact' | 'records'>) {
  const passes = source.records(PASSES)
  return {
    /**
     * Whether this installation keeps finished runs if no setting says otherwise. This is the case if the installation
     * already had runs when retention was introduced.
     */
    async keepsByDefault(): Promise<boolean> {
      const [row] = await source.records(installation<boolean>('')).rows('KeepsByDefault')
      // A missing row means that runs are kept, because this default loses no data.
      return row?.Value ?? true
    },
    /**
     * Begins a pass over these processes under a lease. The pass does not begin if another owner has the lease, or if
     * the last pass over each process was completed less than `everyMs` ago. The times of passes are stored for each
     * process, so coordinators with different processes do not prevent each other's passes.
     *
     * The lease only avoids needless work, because two concurrent passes would do no harm.
     */
    async begin(owner: string, processes: readonly string[], everyMs: number): Promise<PurgeTurn> {
      let turn: PurgeTurn = { kind: 'waiting', lastPassMs: null }
      await changeRow(passes, [NAME], (row, now) => {
        const known = row?.Value
        const ages = processes.map((process) => {
          const at = known?.Passed?.[process]
          return at === undefined ? Infinity : now - Date.parse(at)
        })
        const oldestMs = Math.max(...ages)
        const isDue = known === undefined || (isAvailable(known, owner, now) && oldestMs >= everyMs)
        turn = {
          kind: isDue ? 'begun' : 'waiting',
          lastPassMs: Number.isFinite(oldestMs) ? oldestMs : null,
        }
        return isDue ? { Name: NAME, Value: { ...known, ...leaseOf(owner, now, LEASE_MS) } } : row
      })
      return turn
    },
    /** Renews the lease of the pass. Returns false if another owner has the lease now. */
    async renew(owner: string): Promise<boolean> {
      const row = await changeRow(passes, [NAME], (known, now) =>
        known?.Value.Owner === owner
          ? { Name: NAME, Value: { ...known.Value, ...leaseOf(owner, now, LEASE_MS) } }
          : known,
      )
      return row?.Value.Owner === owner
    },
    /** Completes a pass over these processes: records the numbers of purged runs and deleted ids in the action log. */
    async end(owner: string, processes: readonly string[]): Promise<void> {
      for (const [action, prefix] of Object.entries(COUNTED) as [keyof typeof COUNTED, string][]) {
        const counts = source.records(installation<number>(prefix))
        const counted = await counts.rows()
        // The purge counts as completed only when the purged data is no longer in the files.
        if (counted.length > 0) await source.compact()
        for (const { Name } of counted)
          await changeRow(
            counts,
            [Name],
            () => undefined,
            (now, row) =>
              entryOf(
                action,
                { by: { keyId: RETENTION_KEY_ID, person: null }, reason: `${row?.Value} runs` },
                { Process: Name.slice(prefix.length) },
                { now },
              ),
          )
      }
      await changeRow(passes, [NAME], (known, now) => {
        if (known?.Value.Owner !== owner) return known
        const at = new Date(now).toISOString()
        const passed = Object.fromEntries(processes.map((process) => [process, at]))
        const Passed = { ...known.Value.Passed, ...passed }
        return { Name: NAME, Value: { ...known.Value, Until: at, Passed } }
      })
    },
  }
}
