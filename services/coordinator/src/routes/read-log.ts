/**
 * Records in the action log who read business data: exports, the content of dead letters, stored responses of steps, and
 * the data of a run that a person reads. The entry is committed before the data is sent, so no data is sent without it.
 *
 * Callers can cause any number of reads, so equal reads of one window have one entry, and a key has at most
 * {@link READS_PER_WINDOW} entries in a window. One more entry then says that there were further reads.
 */
import {
  type ActionKind,
  type ActionWithoutChange,
  type Actor,
  EVERY_PROCESS,
} from '../run/action.ts'

/** A window begins at each multiple of this time. */
const WINDOW_MS = 600_000
export const READS_PER_WINDOW = 1_000

export interface DataRead {
  readonly kind: Extract<
    ActionKind,
    'export' | 'read_data' | 'read_dead_letter' | 'read_dead_letters'
  >
  /** Absent if the read was not about one process. */
  readonly process?: string | undefined
  readonly transactionId?: string | null
  /** The run; `null` for the latest run. */
  readonly replayId?: number | null
  /** What was read of it, for example `since=2026-11-01T00:00:00.000Z`; `null` without a filter. */
  readonly filter: string | null
}

/** @throws {IntegrationError} `store_unavailable` if the entry could not be committed. */
export type RecordRead = (by: Actor, read: DataRead) => Promise<void>

export function createReadLog(deps: {
  readonly record: (action: ActionWithoutChange) => Promise<void>
  readonly now: () => number
}): RecordRead {
  const entriesOf = new Map<string, Set<string>>()
  let window = 0
  return async ({ keyId, person }, read) => {
    const current = Math.floor(deps.now() / WINDOW_MS)
    if (current !== window) entriesOf.clear()
    window = current
    const entries = entriesOf.get(keyId) ?? new Set()
    entriesOf.set(keyId, entries)
    const isNew = (one: DataRead): boolean => !entries.has(JSON.stringify([person, one]))
    if (!isNew(read)) return
    const further: DataRead = {
      kind: read.kind,
      filter: `further reads: the key has read more than ${READS_PER_WINDOW} different things within ten minutes`,
    }
    const recorded = entries.size < READS_PER_WINDOW ? read : further
    if (!isNew(recorded)) return
    await deps.record({
      kind: recorded.kind,
      act: { by: { keyId, person }, reason: recorded.filter, ifVersion: null },
      Process: recorded.process ?? EVERY_PROCESS,
      TransactionID: recorded.transactionId ?? null,
      ReplayID: recorded.replayId ?? null,
      Outcome: 'done',
    })
    entries.add(JSON.stringify([person, recorded]))
  }
}
