/** Assigns slots to runs of processes that limit the number of runs in progress. */
import type { Run, RunKey } from '../../run/run.ts'
import { granted } from '../../run/slot-transitions.ts'
import {
  type Grants,
  MAX_GRANTS,
  type SlotRequest,
  type Slots,
  WHOLE_PROCESS,
} from '../../run/slots.ts'
import type { StoredRun, Times } from '../../run/transitions.ts'
import type { RunTable, SlotGroup } from './run-table.ts'

/** Returns the concurrency key to which the limit applies; `null` if the key is not known yet. */
export const slotKeyOf = ({ ConcurrencyKey }: Run, { key }: SlotRequest): string | null =>
  key === WHOLE_PROCESS ? WHOLE_PROCESS : (ConcurrencyKey ?? key)

/** Whether the run may be claimed: it has a slot, or a slot is free for it. */
export function mayHaveSlot(
  table: Pick<RunTable, 'countSlots' | 'waitingForSlot'>,
  stored: StoredRun,
  key: string,
  limit: number,
): boolean {
  if (stored.slot?.isHeld === true && stored.slot.key === key) return true
  const { Process: process } = stored.header
  const free = limit - table.countSlots(process, key)
  if (free <= 0) return false
  const isAhead = (other: StoredRun): boolean => inOrder(other, stored) < 0
  return table.waitingForSlot(process, key).filter(isAhead).length < free
}

export function createMemorySlots(
  table: RunTable,
  commitRuns: (runs: readonly StoredRun[]) => Promise<Run[]>,
  times: () => Times,
): Slots {
  return {
    async grantSlots(limits, released): Promise<Grants> {
      const at = times()
      const chosen = groupsOf(table, released).flatMap(({ process, key }) => {
        const given = limits.find((limit) => limit.process === process)
        if (given === undefined) return []
        const limit = given.limit ?? Number.POSITIVE_INFINITY
        const free = Math.max(0, limit - table.countSlots(process, key))
        if (free === 0) return []
        return table
          .waitingForSlot(process, key)
          .toSorted(inOrder)
          .slice(0, free)
          .map((stored) => granted(stored, key, at))
      })
      const runs = await commitRuns(chosen.slice(0, MAX_GRANTS))
      return { runs, hasMore: chosen.length > MAX_GRANTS }
    },
  }
}

/**
 * Returns the groups whose free slots are to be assigned: the groups to which the released runs belong, or all groups
 * if `released` is `null`.
 */
function groupsOf(
  table: Pick<RunTable, 'get' | 'slotGroups'>,
  released: readonly RunKey[] | null,
): readonly SlotGroup[] {
  if (released === null) return table.slotGroups()
  const groups = released.flatMap((run) => {
    const { Process: process } = run
    const key = table.get(run)?.header.ConcurrencyKey ?? WHOLE_PROCESS
    return [
      { process, key },
      { process, key: WHOLE_PROCESS },
    ]
  })
  return [...new Map(groups.map((group) => [JSON.stringify(group), group])).values()]
}

/** Compares two runs by the order in which they get slots. */
function inOrder({ header: a }: StoredRun, { header: b }: StoredRun): number {
  const dueA = a.NextAttemptAt ?? ''
  const dueB = b.NextAttemptAt ?? ''
  if (dueA !== dueB) return dueA < dueB ? -1 : 1
  if (a.TransactionID !== b.TransactionID) return a.TransactionID < b.TransactionID ? -1 : 1
  return a.ReplayID - b.ReplayID
}
