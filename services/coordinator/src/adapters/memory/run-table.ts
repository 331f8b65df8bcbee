/** The runs of the memory source, with the indexes that make its operations fast. */
import { createFamilyIndex } from './family-index.ts'
import { debounceKeyText } from '../../run/debounce.ts'
import { keyText, type RunKey } from '../../run/run.ts'
import { isOver } from '../../run/status.ts'
import { isOverdue, type StoredRun } from '../../run/transitions.ts'

export type RunTable = ReturnType<typeof createRunTable>

/** A run, and the ids of the transactions that it has absorbed. */
export interface Absorbed {
  readonly run: RunKey
  readonly ids: readonly string[]
}

/**
 * The key texts of the runs of one process and key that have a slot, and of those that wait for one. The two sets are
 * separate, because a claim that finds no free slot must not read the waiting runs, which may be many.
 */
export interface SlotGroup {
  readonly held: ReadonlySet<string>
  readonly waiting: ReadonlySet<string>
}

export function createRunTable() {
  const runs = new Map<string, StoredRun>()
  const families = createFamilyIndex()
  /** The replay ids of each transaction. With them, the latest run of a transaction is found without a search. */
  const replays = new Map<string, number[]>()
  /**
   * The unfinished runs by their key. Polling reads only these runs, so it does not slow down as finished runs
   * accumulate.
   */
  const active = new Map<string, StoredRun>()
  /** No unfinished run is overdue before this time, so that a poll reads none while many runs wait. */
  let soonestSweepAt = Infinity
  /** The groups of each process, by the key of the slot. */
  const slots = new Map<string, Map<string, MutableGroup>>()

  /** The newest run that was queued for each debounce key. */
  const debounces = new Map<string, string>()
  /**
   * The absorbed transactions. `absorbed` maps each run to the ids that it has absorbed; `absorbers` maps each of these
   * ids to its run.
   */
  const absorbed = new Map<string, { readonly run: RunKey; readonly ids: Set<string> }>()
  const absorbers = new Map<string, string>()

  /**
   * Must be called before the run is stored in `runs`, because only a run that `runs` does not contain counts as new.
   * The update of an older run must not replace a newer run of the same debounce key.
   */
  const updateDebounce = (key: string, { header, absorbsUntil }: StoredRun): void => {
    if (absorbsUntil === undefined) return
    const debounce = debounceOf(header)
    const waits = header.Status === 'Queued' && header.Version === 0
    const isNew = !runs.has(key)
    // The form of the key changes when it is sealed with another key.
    const wasNewest = leaveDebounce(key)
    if (waits && (isNew || (wasNewest && !debounces.has(debounce)))) debounces.set(debounce, key)
  }
  /** Returns whether the run was the newest one of its debounce key. */
  const leaveDebounce = (key: string): boolean => {
    const before = runs.get(key)?.header
    if (before === undefined || debounces.get(debounceOf(before)) !== key) return false
    return debounces.delete(debounceOf(before))
  }
  const removeAbsorbed = (run: RunKey, ids: readonly string[]): void => {
    const known = absorbed.get(keyText(run))
    for (const id of ids) {
      known?.ids.delete(id)
      absorbers.delete(transactionKey(run.Process, id))
    }
    if (known?.ids.size === 0) absorbed.delete(keyText(run))
  }

  const replayIds = (process: string, transactionId: string): readonly number[] =>
    replays.get(transactionKey(process, transactionId)) ?? []
  const find = (
    Process: string,
    TransactionID: string,
    replayId: number | null,
  ): StoredRun | undefined => {
    const ReplayID = replayId ?? Math.max(-1, ...replayIds(Process, TransactionID))
    return runs.get(keyText({ Process, TransactionID, ReplayID }))
  }

  const leaveSlot = (key: string): void => {
    const stored = runs.get(key)
    if (stored?.slot === undefined) return
    const groups = slots.get(stored.header.Process)
    const group = groups?.get(stored.slot.key)
    if (group === undefined) return
    group.held.delete(key)
    group.waiting.delete(key)
    if (group.held.size + group.waiting.size === 0) groups?.delete(stored.slot.key)
  }
  const enterSlot = (key: string, { header, slot }: StoredRun): void => {
    if (slot === undefined) return
    const groups = slots.get(header.Process) ?? new Map<string, MutableGroup>()
    const group = groups.get(slot.key) ?? { held: new Set<string>(), waiting: new Set<string>() }
    slots.set(header.Process, groups.set(slot.key, group))
    group[slot.isHeld ? 'held' : 'waiting'].add(key)
  }

  return {
    /** The children by family. */
    families,
    put(stored: StoredRun): void {
      const { Process, TransactionID, ReplayID, Status } = stored.header
      const key = keyText(stored.header)
      leaveSlot(key)
      enterSlot(key, stored)
      updateDebounce(key, stored)
      families.change(runs.get(key), stored)
      if (!runs.has(key))
        replays.set(transactionKey(Process, TransactionID), [
          ...replayIds(Process, TransactionID),
          ReplayID,
        ])
      runs.set(key, stored)
      if (isOver(Status)) return void active.delete(key)
      active.set(key, stored)
      soonestSweepAt = Math.min(soonestSweepAt, stored.nextSweepAt)
    },
    remove({ header }: StoredRun): void {
      const { Process, TransactionID, ReplayID } = header
      leaveSlot(keyText(header))
      leaveDebounce(keyText(header))
      const known = runs.get(keyText(header))
      if (known !== undefined) families.change(known, undefined)
      removeAbsorbed(header, [...(absorbed.get(keyText(header))?.ids ?? [])])
      runs.delete(keyText(header))
      active.delete(keyText(header))
      const others = replayIds(Process, TransactionID).filter((id) => id !== ReplayID)
      const transaction = transactionKey(Process, TransactionID)
      if (others.length === 0) replays.delete(transaction)
      else replays.set(transaction, others)
    },
    get: (key: RunKey) => runs.get(keyText(key)),
    /** Returns the run with this `keyText`. */
    byText: (key: string) => runs.get(key),
    /** Returns the run with this `replayId`, or the latest run of the transaction if `replayId` is `null`. */
    find,
    /** Returns all runs of the transaction. */
    runsOf: (Process: string, TransactionID: string): StoredRun[] =>
      replayIds(Process, TransactionID)
        .map((ReplayID) => find(Process, TransactionID, ReplayID))
        .filter((stored) => stored !== undefined),
    /** Returns the unfinished run of a transaction. A transaction has at most one. */
    activeRunOf(Process: string, TransactionID: string): StoredRun | undefined {
      const ids = replayIds(Process, TransactionID)
      const running = ids.find((ReplayID) =>
        active.has(keyText({ Process, TransactionID, ReplayID })),
      )
      return running === undefined ? undefined : find(Process, TransactionID, running)
    },
    /** Returns the unfinished runs. */
    active: (): StoredRun[] => [...active.values()],
    /** Returns the unfinished runs that the sweeper has to look at. */
    overdue(now: number): StoredRun[] {
      if (soonestSweepAt > now) return []
      soonestSweepAt = Infinity
      const found: StoredRun[] = []
      for (const stored of active.values()) {
        soonestSweepAt = Math.min(soonestSweepAt, stored.nextSweepAt)
        if (isOverdue(stored, now)) found.push(stored)
      }
      return found
    },
    all: (): StoredRun[] => [...runs.values()],
    /**
     * Returns the newest run that was queued for a debounce key; `undefined` if this run has already had a transition.
     */
    debounced: (key: string) => runs.get(debounces.get(key) ?? ''),
    /** Stores the ids of the transactions that a run has absorbed (debounced into itself). */
    addAbsorbed({ Process, TransactionID, ReplayID }: RunKey, ids: readonly string[]): void {
      if (ids.length === 0) return
      const run = { Process, TransactionID, ReplayID }
      const known = absorbed.get(keyText(run)) ?? { run, ids: new Set<string>() }
      absorbed.set(keyText(run), known)
      for (const id of ids) {
        known.ids.add(id)
        absorbers.set(transactionKey(Process, id), keyText(run))
      }
    },
    removeAbsorbed,
    /** Returns the run that has absorbed the transaction. */
    absorberOf: (process: string, id: string) =>
      runs.get(absorbers.get(transactionKey(process, id)) ?? ''),
    absorbedBy: (run: RunKey): readonly string[] => [...(absorbed.get(keyText(run))?.ids ?? [])],
    /** Returns, for each run, the ids of the transactions that it has absorbed. */
    allAbsorbed: (): Absorbed[] =>
      [...absorbed.values()].map(({ run, ids }) => ({ run, ids: [...ids] })),
    /** Returns the runs of the process that have a slot or wait for one, by the key of the slot. */
    slotsOf: (process: string): ReadonlyMap<string, SlotGroup> => slots.get(process) ?? NO_SLOTS,
  }
}

interface MutableGroup {
  readonly held: Set<string>
  readonly waiting: Set<string>
}

const NO_SLOTS: ReadonlyMap<string, SlotGroup> = new Map()

const debounceOf = ({ Process, Realm, DebounceKey }: StoredRun['header']): string =>
  debounceKeyText(Process, Realm, DebounceKey)

const transactionKey = (process: string, transactionId: string): string =>
  JSON.stringify([process, transactionId])
