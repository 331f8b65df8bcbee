/**
 * The store of the paused companies: one row of `Order_Installation` for each. The row of a company that was resumed
 * remains until all of its runs have continued, so that another coordinator goes on if the one that has resumed it dies.
 */
import { type Act, entryOf, EVERY_PROCESS } from '../run/action.ts'
import { pausedBy } from '../run/pause.ts'
import { installation, type InstallationRow } from '../records/installation.ts'
import { changeRow } from '../records/records.ts'
import type { TransactionSource } from '../run/transaction-source.ts'

export interface CompanyPause {
  /** ISO 8601. */
  readonly PausedAt: string
  /** The person for whom the holder of the key acted, or else the id of the key; `null` after an erasure. */
  readonly PausedBy: string | null
  readonly Reason: string | null
  /** The time at which the company was resumed, ISO 8601; `null` while it is paused. */
  readonly ResumedAt: string | null
}
export type CompanyPauseRow = InstallationRow<CompanyPause>

const PREFIX = 'pause:'
export const realmOfRow = ({ Name }: CompanyPauseRow): string => Name.slice(PREFIX.length)
export const isPausedRow = ({ Value }: CompanyPauseRow): boolean => Value.ResumedAt === null

export type CompanyPauses = ReturnType<typeof createCompanyPauses>

export function createCompanyPauses(source: Pick<TransactionSource, 'records'>) {
  const records = source.records(installation<CompanyPause>(PREFIX))
  return {
    /** Returns the paused companies, and those that were resumed lately, in the order of their ids. */
    rows: () => records.rows(),
    /** The present time of the store, in epoch ms. */
    now: () => records.now(),
    /**
     * Pauses or resumes a company. If the company is already paused, a further pause keeps the time, the person and the
     * reason of the first pause.
     */
    async setPaused(realm: string, isPaused: boolean, act: Act): Promise<void> {
      const Name = PREFIX + realm
      await changeRow(
        records,
        [Name],
        (known, now) => {
          const at = new Date(now).toISOString()
          const first = known?.Value.ResumedAt === null ? known.Value : null
          const PausedAt = first?.PausedAt ?? at
          const PausedBy = first === null ? pausedBy(act) : first.PausedBy
          const Reason = first === null ? act.reason : first.Reason
          const ResumedAt = isPaused ? null : at
          return { Name, Value: { PausedAt, PausedBy, Reason, ResumedAt } }
        },
        (now) =>
          entryOf(
            isPaused ? 'pause' : 'resume',
            act,
            { Process: EVERY_PROCESS, Realm: realm },
            { now },
          ),
      )
    },
    /** Ends the pause of a company whose runs were erased, and removes who has paused it, and why. */
    async end(realm: string): Promise<void> {
      const Name = PREFIX + realm
      await changeRow(records, [Name], (known, now) => {
        if (known === undefined || isEnded(known)) return known
        const ResumedAt = new Date(now).toISOString()
        return { Name, Value: { ...known.Value, PausedBy: null, Reason: null, ResumedAt } }
      })
    },
    /** Removes the row of a resumed company, unless it has changed. */
    async forget(row: CompanyPauseRow): Promise<void> {
      await records.replace(row, undefined)
    },
  }
}

const isEnded = ({ Value }: CompanyPauseRow): boolean =>
  Value.ResumedAt !== null && Value.PausedBy === null && Value.Reason === null
