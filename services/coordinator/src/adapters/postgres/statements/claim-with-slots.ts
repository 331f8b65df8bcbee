import type postgres from 'postgres'
import type { SlotRequest } from '../../../run/slots.ts'
import type { ClaimRequest, ClaimResult } from '../../../run/transaction-source.ts'
import { claimRuns, rejectionReasons } from './claim-runs.ts'
import { assignSlots, type LimitedClaim, lockSlotsOfClaims, parkRuns } from './slots.ts'

/**
 * Claims runs of processes that limit the number of runs in progress. Runs with a slot are claimed by the same
 * statement as the runs of processes without a limit. Runs without a slot become `Waiting`.
 */
export async function claimWithSlots(
  tx: postgres.TransactionSql,
  requests: readonly (ClaimRequest & { readonly slot: SlotRequest })[],
  times: { readonly leaseMs: number },
): Promise<ClaimResult[]> {
  const wanted = requests.map(({ slot, ...request }, n): LimitedClaim => ({
    ...request,
    ...slot,
    n,
  }))
  const results = new Map<number, ClaimResult>()
  const withKey: LimitedClaim[] = []
  const exempt: LimitedClaim[] = []
  for (const locked of await lockSlotsOfClaims(tx, wanted)) {
    const { n, key, isExempt, InitialData: initialData, Realm: realm, Version: version } = locked
    if (isExempt) exempt.push(wanted[n] as LimitedClaim)
    else if (key === null)
      results.set(n, { kind: 'unkeyed', initialData, version, ...(realm !== null && { realm }) })
    else withKey.push({ ...(wanted[n] as LimitedClaim), key })
  }
  const assigned = withKey.length === 0 ? [] : await assignSlots(tx, withKey)
  const isAssigned = (test: (slot: (typeof assigned)[number]) => boolean) => {
    const chosen = new Set(assigned.filter(test).map(({ n }) => n))
    return withKey.filter(({ n }) => chosen.has(n))
  }
  const toClaim = [...exempt, ...isAssigned(({ hasSlot }) => hasSlot)]
  const claimed = toClaim.length === 0 ? [] : await claimRuns(tx, toClaim, times)
  for (const [index, { n }] of toClaim.entries())
    results.set(n, claimed[index] ?? { kind: 'unknown' })
  // A run that still has the lease of a lost worker does not become `Waiting` here, because lease recovery must first
  // record the attempt of that worker.
  const toPark = isAssigned(({ hasSlot, isLeased }) => !hasSlot && !isLeased)
  const parked = toPark.length === 0 ? [] : await parkRuns(tx, toPark)
  for (const { n, isNew, ...run } of parked)
    results.set(n, isNew ? { kind: 'no_slot', run } : { kind: 'stale' })
  const rejected = wanted.filter(({ n }) => !results.has(n))
  const reasons = rejected.length === 0 ? results : await rejectionReasons(tx, rejected)
  return wanted.map(({ n }) => results.get(n) ?? reasons.get(n) ?? { kind: 'unknown' })
}
