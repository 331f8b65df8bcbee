/**
 * The slots of processes that limit the number of runs in progress (`concurrency`).
 *
 * L1  A run of such a process is claimed only if it has a slot. It keeps its slot while its status is `Running`, even
 *     between two steps. It has no slot while it waits, before it is retried, and after its end.
 * L2  The runs with a slot never outnumber the limit of their process and key, nor the total of their process, on all
 *     replicas together, unless the limit was lowered or introduced while they ran.
 * L3  A run that finds no free slot becomes `Waiting` for {@link WAITS_FOR_SLOT}. This wait does not count as an
 *     attempt. Free slots go to the waiting runs in the order of {@link assigned}; a run that comes later does not
 *     overtake them.
 * L4  All decisions about the slots of a process with a total are made one after the other, and so are those of a
 *     process and key without a total.
 */
import { WAITS_FOR_SLOT } from './concurrency.ts'
import type { Run, RunKey } from './run.ts'
import type { RunState } from './transaction-source.ts'

/**
 * The part of the port `TransactionSource` that assigns slots to runs that wait for one. For all other runs, `claim`
 * assigns the slots.
 */
export interface Slots {
  /**
   * Assigns at most {@link MAX_GRANTS} free slots to the runs that have waited longest for a slot, and returns these
   * runs. Their steps are then due.
   *
   * @param limits the processes whose slots are assigned
   * @param released runs that may have released their slots: only slots of the groups (process and key) to which these
   *   runs belong are assigned. `null` means all slots of these processes.
   */
  grantSlots(limits: readonly ProcessLimit[], released: readonly RunKey[] | null): Promise<Grants>
}

export interface ProcessLimit {
  readonly process: string
  /** The limit of all keys together; absent if there is none. */
  readonly total?: number
  /**
   * The limit of each key, or of the process if it has no key. `null` means no limit. Runs may nevertheless wait, because the process had a limit
   * earlier.
   */
  readonly limit: number | null
}

export interface Grants {
  readonly runs: readonly RunState[]
  /** If true, the caller should repeat the call at once, because more slots can possibly be assigned. */
  readonly hasMore: boolean
}

/** The limit that a claim has to observe. */
export interface SlotRequest {
  readonly limit: number
  /** The limit of all keys together; absent if there is none. */
  readonly total?: number
  /**
   * {@link WHOLE_PROCESS}, or the concurrency key that was computed for this claim. `null` means that the key is
   * already stored with the run.
   */
  readonly key: string | null
}

/** The key of a limit that applies to all runs of a process. No run can have this key. */
export const WHOLE_PROCESS = ''

export const MAX_GRANTS = 500

/**
 * The milliseconds after which the sweeper publishes a run that waits for a slot. This is only a safeguard, because
 * `grantSlots` assigns the slots.
 */
export const SLOT_RECHECK_MS = 3_600_000

/** A run that wants a slot. */
export interface SlotCandidate {
  readonly key: string
  readonly run: Pick<Run, 'Priority' | 'NextAttemptAt' | 'TransactionID' | 'ReplayID'>
}

/**
 * Returns the candidates that get a free slot. The first slot goes to a run with high priority; among these, to a run of
 * the key with the fewest slots; among these, to the run that has been due longest. Then the next slot is given.
 *
 * @param held the number of slots that each key has
 */
export function assigned<Candidate extends SlotCandidate>(
  candidates: readonly Candidate[],
  { limit, total = Number.POSITIVE_INFINITY }: Pick<SlotRequest, 'limit' | 'total'>,
  held: ReadonlyMap<string, number>,
): Candidate[] {
  const free = total - [...held.values()].reduce((sum, count) => sum + count, 0)
  if (free <= 0) return []
  const ordered = candidates.toSorted(inOrder)
  const level = new Map(held)
  const ranked = ordered.map((candidate) => {
    const slots = (level.get(candidate.key) ?? 0) + 1
    level.set(candidate.key, slots)
    return { candidate, slots }
  })
  return ranked
    .filter(({ slots }) => slots <= limit)
    .toSorted(
      (a, b) => byPriority(a.candidate, b.candidate) || a.slots - b.slots, // the sort is stable
    )
    .slice(0, free)
    .map(({ candidate }) => candidate)
}

const byPriority = ({ run: a }: SlotCandidate, { run: b }: SlotCandidate): number =>
  Number(b.Priority === 'high') - Number(a.Priority === 'high')

/** Compares two runs of one key by the order in which they get slots. */
function inOrder(one: SlotCandidate, other: SlotCandidate): number {
  const priority = byPriority(one, other)
  if (priority !== 0) return priority
  const { run: a } = one
  const { run: b } = other
  const dueA = a.NextAttemptAt ?? ''
  const dueB = b.NextAttemptAt ?? ''
  if (dueA !== dueB) return dueA < dueB ? -1 : 1
  if (a.TransactionID !== b.TransactionID) return a.TransactionID < b.TransactionID ? -1 : 1
  return a.ReplayID - b.ReplayID
}

/** Whether the run waits for a slot. */
export const isWaitingForSlot = ({
  Status,
  WaitingFor,
}: Pick<Run, 'Status' | 'WaitingFor'>): boolean =>
  Status === 'Waiting' && WaitingFor === WAITS_FOR_SLOT
