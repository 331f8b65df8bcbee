/**
 * Follows the runs by their transitions, and corrects the coordinator's counts by these transitions. The coordinator
 * counts the groups of runs only once a minute, but the page Now must show a failure within seconds.
 */
import type { TransactionEvent } from '@integration-host/shared/contracts/transaction-event'
import type { RunGroup } from './installation.ts'

/** The maximum number of runs that are followed. If there are more, the run that changed longest ago is dropped. */
const MAX_RUNS = 50_000
const MINUTE_MS = 60_000
const MINUTES = 60

/** The key of a group of runs; `null` for completed runs, which no page counts. */
type GroupKey = string | null

interface Followed {
  readonly process: string
  readonly version: number
  /**
   * The groups in which the run was, each with the time at which the run entered the group, the latest group last. The
   * first entry is the group in which the run was `KEPT_MS` ago. This entry is missing if the run is younger than
   * `KEPT_MS`, or if its age is unknown.
   */
  readonly entered: readonly { readonly group: GroupKey; readonly at: number }[]
}

/**
 * The changes of a group since the coordinator's count: how many runs have left the group, how many have entered the
 * group, and when the first run entered.
 */
interface Change {
  left: number
  entered: number
  firstAt: number
}

/**
 * The maximum age of the coordinator's latest count. Transitions that are older than this are already in the count. A
 * replica counts once a minute.
 */
const KEPT_MS = 5 * MINUTE_MS

export interface Minute {
  readonly Done: number
  readonly Failed: number
}

export interface RunTracker {
  /** Records a transition. Repeated and outdated transitions change nothing. */
  follow(event: TransactionEvent): void
  /** Applies the transitions since `countedAt` (epoch ms) to the groups that the coordinator counted then. */
  corrected(process: string, groups: readonly RunGroup[], countedAt: number): readonly RunGroup[]
  /** Returns the runs that ended in each of the last 60 minutes, the oldest minute first. */
  minutes(now: number): readonly Minute[]
}

type Grouped = Pick<RunGroup, 'process' | 'step' | 'status' | 'errorClass' | 'waitingFor'>

/**
 * Returns the group in which the pages count a run. Runs are grouped by process and status. Failed runs, and runs that
 * wait for a company, are also grouped by step and error class. Queued and running runs form one group, because the
 * coordinator does not publish every start of a step.
 */
function groupOf({ process, step, status, errorClass, waitingFor }: Grouped): Grouped {
  if (status === 'Failed' || waitingFor !== null)
    return { process, step, status, errorClass, waitingFor }
  const counted = status === 'Queued' ? 'Running' : status
  return { process, step: null, status: counted, errorClass: null, waitingFor: null }
}

const keyOf = (group: Grouped): string => {
  const { process, step, status, errorClass, waitingFor } = groupOf(group)
  return JSON.stringify([process, step, status, errorClass, waitingFor])
}

const keyAfter = (event: TransactionEvent): GroupKey =>
  event.Status === 'Completed'
    ? null
    : keyOf({
        process: event.Process,
        step: event.StepName,
        status: event.Status,
        errorClass: event.ErrorClass,
        waitingFor: event.WaitingFor,
      })

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
      const group = keyAfter(event)
      const before = known?.entered ?? firstSeen(event)
      const entered = before.at(-1)?.group === group ? before : [...before, { group, at }]
      const kept = entered.findLastIndex((one) => one.at <= at - KEPT_MS)
      runs.delete(key)
      runs.set(key, {
        process: event.Process,
        version: event.Version,
        entered: entered.slice(Math.max(0, kept)),
      })
      const [oldest] = runs.keys()
      if (runs.size > MAX_RUNS && oldest !== undefined) runs.delete(oldest)
      countEnd(event, at)
    },
    corrected(process, groups, countedAt) {
      const changes = new Map<string, Change>()
      const changeOf = (key: string): Change => {
        const change = changes.get(key) ?? { left: 0, entered: 0, firstAt: Infinity }
        changes.set(key, change)
        return change
      }
      for (const { process: own, entered } of runs.values()) {
        const latest = entered.at(-1)
        if (own !== process || latest === undefined || latest.at <= countedAt) continue
        const before = entered.findLast(({ at }) => at <= countedAt)?.group ?? null
        if (before !== null) changeOf(before).left += 1
        if (latest.group === null) continue
        const change = changeOf(latest.group)
        change.entered += 1
        change.firstAt = Math.min(change.firstAt, latest.at)
      }
      const corrected = merged(groups)
      for (const [key, { left, entered, firstAt }] of changes) {
        const group = corrected.get(key) ?? newGroup(key)
        const stayed = Math.max(0, group.count - left)
        group.count = stayed + entered
        if (stayed === 0 && entered > 0 && group.status === 'Failed') group.endedAt = firstAt
        if (group.count > 0 || corrected.has(key)) corrected.set(key, group)
      }
      return [...corrected.values()]
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

/**
 * Returns the groups in which a run was before its first known transition. If the version of that transition shows that
 * the run already existed, the run counts as running before. Its earlier transitions are unknown, because they happened
 * before the console started.
 */
const firstSeen = (event: TransactionEvent): Followed['entered'] =>
  event.Version < 2
    ? []
    : [
        {
          group: keyOf({
            process: event.Process,
            step: null,
            status: 'Running',
            errorClass: null,
            waitingFor: null,
          }),
          at: -Infinity,
        },
      ]

type Count = { -readonly [Member in keyof RunGroup]: RunGroup[Member] }

/** Adds up the coordinator's counts, so that there is one count for each group that the pages distinguish. */
function merged(groups: readonly RunGroup[]): Map<string, Count> {
  const counts = new Map<string, Count>()
  for (const group of groups) {
    const key = keyOf(group)
    const known = counts.get(key)
    if (known === undefined) counts.set(key, { ...group, ...groupOf(group) })
    else {
      known.count += group.count
      known.inDoubt += group.inDoubt
      if (group.endedAt !== null)
        known.endedAt = Math.min(known.endedAt ?? group.endedAt, group.endedAt)
    }
  }
  return counts
}

function newGroup(key: string): Count {
  const [process, step, status, errorClass, waitingFor] = JSON.parse(key) as [
    string,
    string | null,
    string,
    string | null,
    string | null,
  ]
  return { process, step, status, errorClass, waitingFor, count: 0, inDoubt: 0, endedAt: null }
}
