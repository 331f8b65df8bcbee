/**
 * The store of the retention passes: when each process was last purged, which replica purges now, and how many runs its
 * pass has purged and forgotten.
 */
import { installationValues, leasedValue } from '../records/installation.ts'
import { iso } from '../records/records.ts'
import { entryOf } from '../run/action.ts'
import { COUNTED, RETENTION_KEY_ID } from '../run/retention.ts'
import { LEASE_MS, type TransactionSource } from '../run/transaction-source.ts'

/** `Passed` has the time of the last purge of each process. */
interface Passes {
  readonly Passed?: Readonly<Record<string, string>>
}

export type PurgePasses = ReturnType<typeof createPurgePasses>

export function createPurgePasses(source: Pick<TransactionSource, 'compact' | 'records'>) {
  const passes = leasedValue<Passes>(source, 'Retention', LEASE_MS)
  return {
    /**
     * Whether this installation keeps finished runs if no setting says otherwise. This is the case if the installation
     * already had runs when retention was introduced. A missing value means that runs are kept, because this loses no data.
     */
    keepsByDefault: async (): Promise<boolean> =>
      (await installationValues<boolean>(source, '').get('KeepsByDefault')) ?? true,
    /**
     * Begins a pass over these processes under a lease. The pass does not begin (`waiting`) if another owner has the lease,
     * or if the last pass over each process was completed less than `everyMs` ago. The times of passes are stored for each
     * process, so coordinators with different processes do not prevent each other's passes. `lastPassMs` are the
     * milliseconds since the last pass of a process ended, the longest of several; `null` if a process has had no pass.
     *
     * The lease only avoids needless work, because two concurrent passes would do no harm.
     */
    async begin(owner: string, processes: readonly string[], everyMs: number) {
      let oldestMs = Infinity
      const isBegun = await passes.begin(owner, (known, now) => {
        const ages = processes.map((process) => {
          const at = known?.Passed?.[process]
          return at === undefined ? Infinity : now - Date.parse(at)
        })
        oldestMs = Math.max(...ages)
        return known === undefined || oldestMs >= everyMs ? { ...known } : null
      })
      const kind: 'begun' | 'waiting' = isBegun ? 'begun' : 'waiting'
      return { kind, lastPassMs: Number.isFinite(oldestMs) ? oldestMs : null }
    },
    /** Renews the lease of the pass. Returns false if another owner has the lease now. */
    renew: (owner: string): Promise<boolean> => passes.keep(owner, () => ({})),
    /** Completes a pass over these processes: records the numbers of purged runs and deleted ids in the action log. */
    async end(owner: string, processes: readonly string[]): Promise<void> {
      for (const [action, prefix] of Object.entries(COUNTED) as [keyof typeof COUNTED, string][]) {
        const counts = installationValues<number>(source, prefix)
        const counted = [...(await counts.all()).keys()]
        // The purge counts as completed only when the purged data is no longer in the files.
        if (counted.length > 0) await source.compact()
        const by = { keyId: RETENTION_KEY_ID, person: null }
        for (const Process of counted)
          await counts.change(
            Process,
            () => undefined,
            (_now, count) => entryOf(action, { by, reason: `${count} runs` }, { Process }),
          )
      }
      await passes.keep(owner, ({ Passed }, now) => {
        const passed = Object.fromEntries(processes.map((process) => [process, iso(now)]))
        return { Passed: { ...Passed, ...passed }, Until: iso(now) }
      })
    },
  }
}
