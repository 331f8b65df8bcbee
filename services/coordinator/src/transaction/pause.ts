import type { Act } from './action.ts'

/**
 * Since when, by whom and why a process is paused. This data is missing if an earlier version has paused the process.
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
  /** Pauses or resumes a process. Pausing a process that is already paused does not change the data of the pause. */
  setPaused(process: string, isPaused: boolean, act: Act): Promise<void>
}

export const pausedBy = ({ by }: Act): string => by.person ?? by.keyId
