import type { Caller } from '@integration-host/shared/access/caller'

/**
 * Returns whether the caller may see who has paused a process or a schedule, and why. A key that is bound to companies
 * may not, because a pause concerns all companies, and its reason may mention a company to which the key is not bound.
 * A key that may only change things may not either, because another request may have brought the reason.
 */
export const maySeeReasonOfPause = (caller: Caller): boolean =>
  !caller.isBoundToRealms && caller.has('transactions:read')
