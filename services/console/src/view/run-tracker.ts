/**
 * Follows the runs by their transitions, and corrects the coordinator's counts by these transitions. The coordinator
 * counts the groups of runs only once a minute, but the page Now must show a failure within seconds.
 */
import { asksAgain } from '../isomorphic/texts.ts'
import type { RunGroup } from './installation.ts'
import { StreamedTransition } from '@integration-host/shared/contracts/events'
import type { z } from 'zod'

/** The members of a transition that the console uses. */
export const Transition = StreamedTransition.pick({
  Process: true,
  TransactionID: true,
  ReplayID: true,
  Status: true,
  StepName: true,
  ErrorClass: true,
  ProviderError: true,
  WaitingFor: true,
  Version: true,
  At: true,
  First: true,
})
export type Transition = z.output<typeof Transition>

/**
 * The runs are followed in two generations. A run that changes moves to the newer one. When the newer one has this many
 * runs, it becomes the older one, and the runs of the older one are dropped. So the last 25,000 to 50,000 runs that
 * changed are followed. The corrections contain a dropped run until the coordinator counts again.
 */
const GENERATION = 25_000
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

/** How many runs have left a group, and how many have entered it, since the coordinator's count. */
interface Change {
  left: number
  entered: number
}

/** The changes of the groups of a process since the coordinator counted them (epoch ms). */
interface Changes {
  readonly countedAt: number
  readonly groups: Map<string, Change>
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
  follow(event: Transition): void
  /** Applies the transitions since `countedAt` (epoch ms) to the groups that the coordinator counted then. */
  corrected(process: string, groups: readonly RunGroup[], countedAt: number): readonly RunGroup[]
  /** Returns the runs, of one process or of all, that ended in each of the last 60 minutes, the oldest minute first. */
  minutes(now: number, process?: string): readonly Minute[]
}

type Grouped = Omit<RunGroup, 'count' | 'inDoubt' | 'endedAt'>

const NO_REASON = { errorClass: null, providerError: null, waitingFor: null }

/**
 * Returns the group in which the pages count a run. Runs are grouped by process and status. Failed runs, and runs that
 * wait for a company, are also grouped by step, error class and the provider's message. Runs whose step asks again later
 * are a group. Queued and running runs form one group, because the
 * coordinator does not publish every start of a step.
 */
function groupOf(group: Grouped): Grouped {
  const { process, step, status, errorClass, providerError, waitingFor } = group
  if (status === 'Failed' || status === 'UndoFailed' || waitingFor !== null)
    return { process, step, status, errorClass, providerError, waitingFor }
  const counted = status === 'Queued' ? 'Running' : status
  const asking = asksAgain({ Status: status, ErrorClass: errorClass })
  return {
    ...NO_REASON,
    process,
    step: null,
    status: counted,
    ...(asking && { errorClass }),
  }
}

const keyOf = (group: Grouped): string => {
  const { process, step, status, errorClass, providerError, waitingFor } = groupOf(group)
  return JSON.stringify([process, step, status, errorClass, providerError, waitingFor])
}

const keyAfter = (event: Transition): GroupKey =>
  event.Status === 'Completed'
    ? null
    : keyOf({
        process: event.Process,
        step: event.StepName,
        status: event.Status,
        errorClass: event.ErrorClass,
        providerError: event.ProviderError,
        waitingFor: event.WaitingFor,
      })

export function createRunTracker(): RunTracker {
  let older = new Map<string, Followed>()
  let newer = new Map<string, Followed>()
  const changes = new Map<string, Changes>()
  /** The runs that ended in each minute, by process. */
  const ended = new Map<number, Map<string, { Done: number; Failed: number }>>()

  function countEnd({ Process, Status }: Transition, at: number): void {
    if (Status !== 'Completed' && Status !== 'Failed') return
    const minute = Math.floor(at / MINUTE_MS)
    const byProcess = ended.get(minute) ?? new Map<string, { Done: number; Failed: number }>()
    const counts = byProcess.get(Process) ?? { Done: 0, Failed: 0 }
    counts[Status === 'Completed' ? 'Done' : 'Failed'] += 1
    ended.set(minute, byProcess.set(Process, counts))
    for (const old of ended.keys()) if (old <= minute - 2 * MINUTES) ended.delete(old)
  }

  /** Returns the changes of a process since `countedAt`. They are counted again when the coordinator has counted. */
  function changesSince(process: string, countedAt: number): Changes {
    const known = changes.get(process)
    if (known?.countedAt === countedAt) return known
    const counted: Changes = { countedAt, groups: new Map() }
    for (const generation of [older, newer])
      for (const run of generation.values()) if (run.process === process) count(counted, run, 1)
    changes.set(process, counted)
    return counted
  }

  /**
   * Returns when the first of the runs that are in a group, and have entered it since `countedAt`, entered it; `null` if
   * none of them is followed.
   */
  function firstEntry(group: string, countedAt: number): number | null {
    let first: number | null = null
    for (const generation of [older, newer])
      for (const { entered } of generation.values()) {
        const latest = entered.at(-1)
        if (latest?.group === group && latest.at > countedAt)
          first = Math.min(first ?? Infinity, latest.at)
      }
    return first
  }

  return {
    follow(event) {
      const key = `${event.Process}\0${event.TransactionID}\0${event.ReplayID}`
      const known = newer.get(key) ?? older.get(key)
      if (known !== undefined && known.version >= event.Version) return
      const at = Date.parse(event.At)
      const group = keyAfter(event)
      const before = known?.entered ?? firstSeen(event)
      // A run that failed again has a new time of its failure, even if the transitions between are unknown.
      const hasEntered = before.at(-1)?.group !== group || event.Status === 'Failed'
      const entered = hasEntered ? [...before, { group, at }] : before
      const kept = entered.findLastIndex((one) => one.at <= at - KEPT_MS)
      const run: Followed = {
        process: event.Process,
        version: event.Version,
        entered: kept > 0 ? entered.slice(kept) : entered,
      }
      if (newer.size >= GENERATION) {
        older = newer
        newer = new Map()
      }
      older.delete(key)
      newer.set(key, run)
      const counted = changes.get(event.Process)
      if (counted !== undefined) {
        if (known !== undefined) count(counted, known, -1)
        count(counted, run, 1)
      }
      countEnd(event, at)
    },
    corrected(process, groups, countedAt) {
      const corrected = merged(groups)
      for (const [key, { left, entered }] of changesSince(process, countedAt).groups) {
        const group = corrected.get(key) ?? newGroup(key)
        const stayed = Math.max(0, group.count - left)
        group.count = stayed + entered
        if (stayed === 0 && entered > 0 && group.status === 'Failed')
          group.endedAt = firstEntry(key, countedAt) ?? group.endedAt
        if (group.count > 0 || corrected.has(key)) corrected.set(key, group)
      }
      return [...corrected.values()]
    },
    minutes(now, process) {
      const last = Math.floor(now / MINUTE_MS)
      return Array.from({ length: MINUTES }, (_, index) => {
        const byProcess = ended.get(last - MINUTES + 1 + index) ?? new Map<string, Minute>()
        return process === undefined
          ? totalOf([...byProcess.values()])
          : (byProcess.get(process) ?? { Done: 0, Failed: 0 })
      })
    },
  }
}

/** Adds up the runs that ended. */
export const totalOf = (minutes: readonly Minute[]): Minute => ({
  Done: minutes.reduce((sum, { Done }) => sum + Done, 0),
  Failed: minutes.reduce((sum, { Failed }) => sum + Failed, 0),
})

/** Adds a run to the changes of its process, or removes it if `sign` is -1. */
function count({ countedAt, groups }: Changes, { entered }: Followed, sign: 1 | -1): void {
  const latest = entered.at(-1)
  if (latest === undefined || latest.at <= countedAt) return
  const before = entered.findLast(({ at }) => at <= countedAt)?.group ?? null
  if (before !== null) changeOf(groups, before).left += sign
  if (latest.group === null) return
  changeOf(groups, latest.group).entered += sign
}

function changeOf(groups: Map<string, Change>, key: string): Change {
  const known = groups.get(key)
  if (known !== undefined) return known
  const change = { left: 0, entered: 0 }
  groups.set(key, change)
  return change
}

/**
 * Returns the groups in which a run was before its first known transition. If the version of that transition shows that
 * the run already existed, the run counts as running before. Its earlier transitions are unknown, because they happened
 * before the console started. A run that was created by a transition for which the event stands counts as running since
 * then.
 */
function firstSeen({ Process, Version, First }: Transition): Followed['entered'] {
  if (First === undefined && Version < 2) return []
  const isNew = First !== undefined && First.Version < 2
  const running = { ...NO_REASON, step: null, status: 'Running' }
  return [
    {
      group: keyOf({ process: Process, ...running }),
      at: isNew ? Date.parse(First.At) : -Infinity,
    },
  ]
}

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
  const [process, step, status, errorClass, providerError, waitingFor] = JSON.parse(key) as [
    string,
    string | null,
    string,
    string | null,
    string | null,
    string | null,
  ]
  const group = { process, step, status, errorClass, providerError, waitingFor }
  return { ...group, count: 0, inDoubt: 0, endedAt: null }
}
