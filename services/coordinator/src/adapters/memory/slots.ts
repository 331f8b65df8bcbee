/** Assigns slots to runs of processes that limit the number of runs in progress. */
import type { Run, RunKey } from '../../run/run.ts'
import { granted } from '../../run/slot-transitions.ts'
import {
  assigned,
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

type Table = Pick<RunTable, 'slotsOf' | 'byText'>

/** Whether the run may be claimed: it has a slot, or a slot is free for it. */
export function mayHaveSlot(
  table: Table,
  stored: StoredRun,
  key: string,
  limits: SlotRequest,
): boolean {
  if (stored.slot?.isHeld === true && stored.slot.key === key) return true
  const groups = groupsOf(table, stored.header.Process, limits, [key])
  const held = heldBy(groups)
  const own = { key, run: stored.header, stored }
  // Alone it gets a slot only if one is free. The waiting runs, which may be many, are read only then.
  if (assigned([own], limits, held).length === 0) return false
  const others = waitingIn(table, groups).filter((other) => other.stored !== stored)
  return assigned([...others, own], limits, held).includes(own)
}

export function createMemorySlots(
  table: RunTable,
  commitRuns: (runs: readonly StoredRun[]) => Promise<Run[]>,
  times: () => Times,
): Slots {
  return {
    async grantSlots(limits, released): Promise<Grants> {
      const at = times()
      const chosen = limits.flatMap(({ process, limit: given, total }) => {
        const keys = released === null ? null : keysOf(table, released, process)
        if (keys?.length === 0) return []
        const limit = given ?? Number.POSITIVE_INFINITY
        const shared = total === undefined ? { limit } : { limit, total }
        const groups = groupsOf(table, process, shared, keys)
        return assigned(waitingIn(table, groups), shared, heldBy(groups)).map(({ stored, key }) =>
          granted(stored, key, at),
        )
      })
      const runs = await commitRuns(chosen.slice(0, MAX_GRANTS))
      return { runs, hasMore: chosen.length > MAX_GRANTS }
    },
  }
}

type Groups = readonly (readonly [key: string, group: SlotGroup])[]

/** Returns the groups whose slots depend on each other: those of these keys, or all of a process with a total. */
function groupsOf(
  table: Table,
  process: string,
  { total }: { readonly total?: number },
  keys: readonly string[] | null,
): Groups {
  const all = table.slotsOf(process)
  if (keys === null || total !== undefined) return [...all]
  return keys.flatMap((key) => {
    const group = all.get(key)
    return group === undefined ? [] : [[key, group] as const]
  })
}

const heldBy = (groups: Groups): ReadonlyMap<string, number> =>
  new Map(groups.map(([key, { held }]) => [key, held.size]))

const waitingIn = (table: Table, groups: Groups) =>
  groups.flatMap(([key, { waiting }]) =>
    [...waiting].flatMap((text) => {
      const stored = table.byText(text)
      return stored === undefined ? [] : [{ key, run: stored.header, stored }]
    }),
  )

/** Returns the keys of the slots that these runs may have released. */
function keysOf(
  table: Pick<RunTable, 'get'>,
  released: readonly RunKey[],
  process: string,
): readonly string[] {
  const keys = released
    .filter((run) => run.Process === process)
    .flatMap((run) => [table.get(run)?.header.ConcurrencyKey ?? WHOLE_PROCESS, WHOLE_PROCESS])
  return [...new Set(keys)]
}
