import { isFinished } from '../../transaction/item.ts'
import { runKey } from '../../transaction/run.ts'
import type { Claim, ClaimRequest } from '../../transaction/transaction-source.ts'
import type { StoredRun } from '../../transaction/transitions.ts'

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
