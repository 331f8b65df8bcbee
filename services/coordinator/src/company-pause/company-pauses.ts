/**
 * The store of the paused companies: one row of `Order_Installation` for each. The row of a company that was resumed
 * remains until all of its runs have continued, so that another coordinator goes on if the one that has resumed it dies.
 */
import { isDeepStrictEqual } from 'node:util'
import { type Act, entryOf, EVERY_PROCESS } from '../run/action.ts'
import { pausedBy } from '../run/pause.ts'
import { installationValues } from '../records/installation.ts'
import { iso } from '../records/records.ts'
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

export const isPaused = (pause: CompanyPause | undefined): pause is CompanyPause =>
  pause?.ResumedAt === null

export type CompanyPauses = ReturnType<typeof createCompanyPauses>

export function createCompanyPauses(source: Pick<TransactionSource, 'records'>) {
  const pauses = installationValues<CompanyPause>(source, 'pause:')
  return {
    /** Returns the pauses of the companies that are paused, or were resumed lately, in the order of their ids. */
    all: () => pauses.all(),
    /** The present time of the store, in epoch ms. */
    now: () => pauses.now(),
    /**
     * Pauses or resumes a company. If the company is already paused, a further pause keeps the time, the person and the
     * reason of the first pause.
     */
    async setPaused(realm: string, isPausing: boolean, act: Act): Promise<void> {
      await pauses.change(
        realm,
        (known, now) => {
          const first = { PausedAt: iso(now), PausedBy: pausedBy(act), Reason: act.reason }
          return { ...(isPaused(known) ? known : first), ResumedAt: isPausing ? null : iso(now) }
        },
        () =>
          entryOf(isPausing ? 'pause' : 'resume', act, { Process: EVERY_PROCESS, Realm: realm }),
      )
    },
    /** Ends the pause of a company whose runs were erased, and removes who has paused it, and why. */
    async end(realm: string): Promise<void> {
      await pauses.change(realm, (known, now) => {
        if (known === undefined || isEnded(known)) return known
        return { ...known, PausedBy: null, Reason: null, ResumedAt: iso(now) }
      })
    },
    /** Removes the pause of a resumed company, unless it has changed. */
    async forget(realm: string, pause: CompanyPause): Promise<void> {
      await pauses.change(realm, (known) => (isDeepStrictEqual(known, pause) ? undefined : known))
    },
  }
}

const isEnded = ({ ResumedAt, PausedBy, Reason }: CompanyPause): boolean =>
  ResumedAt !== null && PausedBy === null && Reason === null
