/**
 * Follows the runs by their transitions, and corrects the coordinator's counts by these transitions. The coordinator
 * counts the groups of runs only once a minute, but the first page must show a failure within seconds.
 */
import type { TransactionEvent } from '@integration-host/shared/contracts/transaction-event'
import type { RunGroup } from './installation.ts'

/** The maximum number of runs that are followed. If there are more, the run that changed longest ago is dropped. */
const MAX_RUNS = 50_000
const MINUTE_MS = 60_000
const MINUTES = 60

type GroupKey = string

interface Followed {
  readonly version: number
  readonly at: number
  readonly isCompleted: boolean
  /** The group in which the first page shows the run; `null` if the first page shows the run in no group. */
  readonly group: GroupKey | null
  /**
   * The group that the run left when it entered `group`, and the time at which the run had entered that earlier group;
   * `null` if the earlier group is unknown.
   */
  readonly before: { readonly group: GroupKey | null; readonly at: number } | null
}

export interface Minute {
  readonly Done: number
  readonly Failed: number
}

export interface RunTracker {
  /** Records a transition. Repeated and outdated transitions change nothing. */
  follow(event: TransactionEvent): void
  /** Applies the transitions since `countedAt` (epoch ms) to the groups that the coordinator counted then. */
  corrected(process: string, groups: readonly RunGroup[], countedAt: number): readonly RunGroup[]
  /** Returns how many of the followed runs completed after `ms` (epoch ms). */
  completedSince(ms: number): number
  /** Returns the runs that ended in each of the last 60 minutes, the oldest minute first. */
  minutes(now: number): readonly Minute[]
}

const keyOf = (
  group: Pick<RunGroup, 'process' | 'step' | 'status' | 'errorClass' | 'waitingFor'>,
) => JSON.stringify([group.process, group.step, group.status, group.errorClass, group.waitingFor])

/** Returns the group to which a transition leads; `null` if the first page has no such group. */
function groupOf(event: TransactionEvent): GroupKey | null {
  if (event.Status !== 'Failed' && event.WaitingFor === null) return null
  return keyOf({
    process: event.Process,
    step: event.StepName,
    status: event.Status,
    errorClass: event.ErrorClass,
    waitingFor: event.WaitingFor,
  })
}

export function createRunTracker(): RunTracker {
  const runs = new Map<string, Followed>()
  const ended = new Map<number, { Done: number; Failed: number }>()

  function countEnd({ Status }: TransactionEvent, at: number): void {
    if (Status !== 'Completed' && Status !== 'Failed') return
    const minute = Math.floor(at / MINUTE_MS)
    const counts = ended.get(minute) ?? { Done: 0, Failed: 0 }
    counts[Status === 'Completed' ? 'Done' : 'Failed'] += 1
    ended.set(minute, counts)
    for (const old of ended.keys()) if (old <= minute - 2 * MINUTES) ended.delete(old)
  }

  return {
    follow(event) {
      const key = JSON.stringify([event.Process, event.TransactionID, event.ReplayID])
      const known = runs.get(key)
      if (known !== undefined && known.version >= event.Version) return
      const at = Date.parse(event.At)
      const group = groupOf(event)
      const before =
        known === undefined
          ? null
          : known.group === group
            ? known.before
            : { group: known.group, at: known.at }
      runs.delete(key)
      runs.set(key, {
        version: event.Version,
        at,
        isCompleted: event.Status === 'Completed',
        group,
        before,
      })
      const [oldest] = runs.keys()
      if (runs.size > MAX_RUNS && oldest !== undefined) runs.delete(oldest)
      countEnd(event, at)
    },
    corrected(process, groups, countedAt) {
      const counts = new Map(groups.map((group) => [keyOf(group), { ...group }]))
      const change = (key: GroupKey | null, by: number): void => {
        if (key === null) return
        const known = counts.get(key)
        if (known !== undefined) known.count = Math.max(0, known.count + by)
        else if (by > 0) {
          const group = newGroup(key)
          if (group.process === process) counts.set(key, group)
        }
      }
      for (const { at, group, before } of runs.values()) {
        if (at <= countedAt) continue
        // The coordinator has counted the run in this group, unless the run entered the group after the count.
        if (before !== null && before.at <= countedAt) change(before.group, -1)
        change(group, 1)
      }
      return [...counts.values()]
    },
    completedSince(ms) {
      let count = 0
      for (const { at, isCompleted } of runs.values()) if (isCompleted && at > ms) count += 1
      return count
    },
    minutes(now) {
      const last = Math.floor(now / MINUTE_MS)
      return Array.from(
        { length: MINUTES },
        (_, index) => ended.get(last - MINUTES + 1 + index) ?? { Done: 0, Failed: 0 },
      )
    },
  }
}

function newGroup(key: GroupKey): { -readonly [Member in keyof RunGroup]: RunGroup[Member] } {
  const [process, step, status, errorClass, waitingFor] = JSON.parse(key) as [
    string,
    string,
    string,
    string | null,
    string | null,
  ]
  return { process, step, status, errorClass, waitingFor, count: 1, inDoubt: 0, oldestAt: null }
}
