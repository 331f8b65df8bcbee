/** The store of the passes that encrypt payloads with the active key. One replica at a time makes a pass. */
import {
  installation,
  type InstallationLease,
  isAvailable,
  leaseOf,
} from '../records/installation.ts'
import { changeRow } from '../records/records.ts'
import type { RunKey } from '../run/run.ts'
import { LEASE_MS, type TransactionSource } from '../run/transaction-source.ts'

export interface ResealingProgress {
  /** The id of the key with which the pass encrypts payloads. */
  readonly keyId: string
  /** The last run that the pass has read; `null` if the pass has read no run yet. */
  readonly after: RunKey | null
  /**
   * The number of payloads that are in plain text or sealed with another key; `null` until the payloads are counted.
   */
  readonly outdated: number | null
  readonly isDone: boolean
}

/** Earlier versions called their passes `Resealing`, and left the keys of runs in plain text. */
const NAME = 'Sealing'
const PASS = installation<ResealingProgress & InstallationLease>(NAME)

const progressOf = ({ keyId, after, outdated, isDone }: ResealingProgress): ResealingProgress => ({
  keyId,
  after,
  outdated,
  isDone,
})

export type ResealingPasses = ReturnType<typeof createResealingPasses>

export function createResealingPasses(source: Pick<TransactionSource, 'records'>) {
  const records = source.records(PASS)
  return {
    /**
     * Begins a pass over all payloads under a lease, or continues one. Returns `null` if another owner has the lease,
     * or if the last pass with this key was completed less than `everyMs` ago.
     */
    async begin(owner: string, keyId: string, everyMs: number): Promise<ResealingProgress | null> {
      let begun: ResealingProgress | null = null
      await changeRow(records, [NAME], (row, now) => {
        const known = row?.Value
        const isDue =
          known?.keyId !== keyId || !known.isDone || Date.parse(known.RenewedAt) <= now - everyMs
        if (known !== undefined && !(isDue && isAvailable(known, owner, now))) {
          begun = null
          return row
        }
        begun =
          known?.keyId === keyId && !known.isDone
            ? progressOf(known)
            : { keyId, after: null, outdated: null, isDone: false }
        return { Name: NAME, Value: { ...begun, ...leaseOf(owner, now, LEASE_MS) } }
      })
      return begun
    },
    /** Stores the progress and renews the lease. Returns false if another owner has the lease now. */
    async save(owner: string, progress: ResealingProgress): Promise<boolean> {
      const row = await changeRow(records, [NAME], (known, now) =>
        known?.Value.Owner === owner
          ? { Name: NAME, Value: { ...progressOf(progress), ...leaseOf(owner, now, LEASE_MS) } }
          : known,
      )
      return row?.Value.Owner === owner
    },
    /** Returns the progress of the last pass; `null` if there was none. */
    async last(): Promise<ResealingProgress | null> {
      const [row] = await records.rows(NAME)
      return row === undefined ? null : progressOf(row.Value)
    },
  }
}
