import { isFinished } from '../../run/item.ts'
import { runKey } from '../../run/run.ts'
import type { Claim, ClaimRequest } from '../../run/transaction-source.ts'
import type { StoredRun } from '../../run/transitions.ts'

/** Returns the claim of a run that this request has just claimed. */
export const claimOf = (
  { header: run, items, lease }: StoredRun,
  request: ClaimRequest,
): Claim => ({
  lease: {
    ...runKey(request),
    step: request.step,
    owner: request.owner,
    version: run.Version,
    attempt: run.Attempt,
    startedAt: lease?.startedAt ?? run.UpdatedAt,
  },
  run,
  items: items.filter(isFinished),
})
