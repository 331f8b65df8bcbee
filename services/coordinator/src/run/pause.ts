import { changeRow, type RecordKind } from '../records/records.ts'
import { type Act, entryOf } from './action.ts'
import type { TransactionSource } from './transaction-source.ts'

/**
 * When, by whom and why a process was paused. The person and the reason are missing if an earlier version of the
 * coordinator has paused the process.
 */
export interface Pause {
  readonly Process: string
  readonly PausedAt: string | null
  /** The person for whom the holder of the key acted, or else the id of the key. */
  readonly PausedBy: string | null
  readonly Reason: string | null
}

/** The paused processes by name. */
export type Pauses = ReadonlyMap<string, Pause>

/** A row of `Order_Process`. The row of a process that was resumed keeps its last pause. */
export interface ProcessRow extends Pause {
  readonly Paused: boolean
  readonly UpdatedAt: string
}

export const PROCESSES: RecordKind<ProcessRow> = { table: 'Order_Process', key: ['Process'] }

export const pausedBy = ({ by }: Act): string => by.person ?? by.keyId

export const pausesOf = (rows: readonly ProcessRow[]): Pauses =>
  new Map(
    rows
      .filter(({ Paused }) => Paused)
      .map(({ Process, PausedAt, PausedBy, Reason }) => [
        Process,
        { Process, PausedAt, PausedBy, Reason },
      ]),
  )

export type PauseStore = ReturnType<typeof createPauseStore>

/** The store of which processes are paused. */
export function createPauseStore(source: Pick<TransactionSource, 'records'>) {
  const records = source.records(PROCESSES)
  return {
    paused: async (): Promise<Pauses> => pausesOf(await records.rows()),
    /**
     * Pauses or resumes a process. If the process is already paused, a further pause keeps the time, the person and the
     * reason of the first pause.
     */
    async setPaused(Process: string, isPaused: boolean, act: Act): Promise<void> {
      await changeRow(
        records,
        [Process],
        (known, now) => {
          const at = new Date(now).toISOString()
          const pause = { Process, PausedAt: at, PausedBy: pausedBy(act), Reason: act.reason }
          const { PausedAt, PausedBy, Reason } = known?.Paused === true ? known : pause
          return { Process, Paused: isPaused, PausedAt, PausedBy, Reason, UpdatedAt: at }
        },
        () => entryOf(isPaused ? 'pause' : 'resume', act, { Process }),
      )
    },
  }
}
