import type { Act } from './action.ts'

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

/** The part of the port `TransactionSource` that stores which processes are paused. */
export interface PauseStore {
  paused(): Promise<Pauses>
  /**
   * Pauses or resumes a process. If the process is already paused, a further pause keeps the time, the person and the
   * reason of the first pause.
   */
  setPaused(process: string, isPaused: boolean, act: Act): Promise<void>
}

export const pausedBy = ({ by }: Act): string => by.person ?? by.keyId
