import { isFinished, type Round } from '../../run/item.ts'
import { runKey } from '../../run/run.ts'
import type { Claim, ClaimRequest } from '../../run/transaction-source.ts'
import type { StoredRun } from '../../run/transitions.ts'

/** Returns the claim of a run that this request has just claimed. */
export function claimOf({ header: run, items, lease }: StoredRun, request: ClaimRequest): Claim {
  const { State: state = null, Round: number } =
    items.find((item) => item.StepName === request.step && !isFinished(item)) ?? {}
  const round = number === undefined ? undefined : { number, state: state as Round['state'] }
  return {
    lease: {
      ...runKey(request),
      step: request.step,
      owner: request.owner,
      version: run.Version,
      attempt: run.Attempt,
      ...(run.Priority !== 'normal' && { priority: run.Priority }),
      ...(round !== undefined && { round: round.number }),
      startedAt: lease?.startedAt ?? run.UpdatedAt,
    },
    run,
    items: items.filter(isFinished),
    ...(round !== undefined && { round }),
  }
}
