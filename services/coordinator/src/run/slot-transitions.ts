/** The transitions of a run that needs a slot, as pure functions for the memory source ({@link StoredRun}). */
import { WAITS_FOR_SLOT } from './concurrency.ts'
import type { Run } from './run.ts'
import { isWaitingForSlot, SLOT_RECHECK_MS, WHOLE_PROCESS } from './slots.ts'
import { next, type StoredRun, type Times } from './transitions.ts'

/** Returns the run after it was claimed with a slot of this key. */
export const withSlot = (stored: StoredRun, key: string): StoredRun => ({
  ...stored,
  header: keyed(stored.header, key),
  slot: { key, isHeld: true },
})

/**
 * Returns the run after it found no free slot: the run waits for a slot of this key. If the run already waited, only
 * its next sweep is postponed.
 */
export const parked = (
  stored: StoredRun,
  { key, step }: { readonly key: string; readonly step: string },
  times: Times,
): StoredRun => {
  const change = { Status: 'Waiting', WaitingFor: WAITS_FOR_SLOT, StepName: step } as const
  const isParked = isWaitingForSlot(stored.header)
  const waiting = isParked ? stored : next(stored, change, times)
  return {
    ...waiting,
    header: keyed(waiting.header, key),
    nextSweepAt: times.now + SLOT_RECHECK_MS,
    sweepCount: 0,
    slot: { key, isHeld: false },
  }
}

/** Returns the run after it got the slot for which it has waited: its step is due again. */
export const granted = (stored: StoredRun, key: string, times: Times): StoredRun => ({
  ...next(stored, { Status: 'Running', WaitingFor: null }, times),
  slot: { key, isHeld: true },
})

const keyed = (header: Run, key: string): Run =>
  key === WHOLE_PROCESS ? header : { ...header, ConcurrencyKey: key }
