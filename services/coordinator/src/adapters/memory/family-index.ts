/** The children of the memory source by family, with the counts that PostgreSQL keeps with a trigger. */
import { type FamilyKey, keyOfFamily } from '../../run/families.ts'
import { keyText, type ParentRun } from '../../run/run.ts'
import { isOver, WAITS_FOR_TURN } from '../../run/status.ts'
import type { StoredRun } from '../../run/transitions.ts'

export interface FamilyCounts {
  readonly Stored: number
  readonly Pending: number
  readonly Waiting: number
  readonly Failed: number
}

interface Members {
  /** The keys of the children, by their position in the list. */
  readonly keys: (string | undefined)[]
  /** The positions of the children that wait for their turn, in the order in which they began to wait. */
  readonly waiting: Set<number>
  /** The keys of the children that have got their turn, and whose message was not published yet. */
  readonly granted: Set<string>
  stored: number
  pending: number
  failed: number
}

const NONE: FamilyCounts = { Stored: 0, Pending: 0, Waiting: 0, Failed: 0 }

/** Returns the family to which a run counts; `null` for a replay of a child, and for every other run. */
export const familyOfChild = ({
  header: { Parent },
  item,
}: StoredRun): { readonly parent: ParentRun; readonly item: number } | null =>
  Parent === undefined || item === undefined ? null : { parent: Parent, item }

const waitsForTurn = ({ header: { Status, WaitingFor } }: StoredRun): boolean =>
  Status === 'Waiting' && WaitingFor?.startsWith(WAITS_FOR_TURN) === true

export function createFamilyIndex() {
  const families = new Map<string, Members>()
  const count = (members: Members, { header }: StoredRun, by: 1 | -1): void => {
    if (!isOver(header.Status)) members.pending += by
    else if (header.Status !== 'Completed') members.failed += by
  }
  return {
    /** Must be called for each change of a run, before it is stored. */
    change(before: StoredRun | undefined, after: StoredRun | undefined): void {
      const child = familyOfChild(after ?? (before as StoredRun))
      if (child === null) return
      const key = keyOfFamily(child.parent)
      const members = families.get(key) ?? {
        keys: [],
        waiting: new Set<number>(),
        granted: new Set<string>(),
        stored: 0,
        pending: 0,
        failed: 0,
      }
      families.set(key, members)
      if (before === undefined) members.stored += 1
      else count(members, before, -1)
      if (after === undefined) {
        members.stored -= 1
        members.keys[child.item] = undefined
        members.waiting.delete(child.item)
        if (members.stored === 0) families.delete(key)
        return
      }
      count(members, after, 1)
      if (before !== undefined && waitsForTurn(before) && after.header.Status === 'Queued')
        members.granted.add(keyText(after.header))
      members.keys[child.item] = keyText(after.header)
      if (waitsForTurn(after)) members.waiting.add(child.item)
      else members.waiting.delete(child.item)
    },
    counts(key: FamilyKey): FamilyCounts {
      const members = families.get(keyOfFamily(key))
      if (members === undefined) return NONE
      const { stored: Stored, pending: Pending, failed: Failed, waiting } = members
      return { Stored, Pending, Waiting: waiting.size, Failed }
    },
    /** Returns the keys of the children in the order of the list, after the position `after`. */
    children: (key: FamilyKey, after = -1): readonly string[] =>
      (families.get(keyOfFamily(key))?.keys ?? [])
        .slice(after + 1)
        .filter((child) => child !== undefined),
    /** Returns the keys of the children that have got their turn since the last call. */
    takeGranted(key: FamilyKey): readonly string[] {
      const granted = families.get(keyOfFamily(key))?.granted
      if (granted === undefined) return []
      const taken = [...granted]
      granted.clear()
      return taken
    },
    /** Returns the keys of the first children that wait for their turn. */
    waiting(key: FamilyKey, limit: number): readonly string[] {
      const members = families.get(keyOfFamily(key))
      if (members === undefined) return []
      const first: string[] = []
      for (const item of members.waiting) {
        if (first.length === limit) break
        const child = members.keys[item]
        if (child !== undefined) first.push(child)
      }
      return first
    },
  }
}
