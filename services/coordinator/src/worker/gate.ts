import { setTimeout as sleep } from 'node:timers/promises'
import { WEBHOOK_PROCESS } from '@integration-host/shared/contracts/events'
import type { Run } from '../run/run.ts'
import type { ProcessDefinition } from '../step/definition.ts'

/** Whether a business process is paused. */
export type PausedNames = Pick<ReadonlySet<string>, 'has'>

export interface GateDeps {
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly now: () => number
  readonly random: () => number
  readonly shutdown: AbortSignal
  readonly rampMs: number
}

export type Gate = ReturnType<typeof createGate>

/** Decides whether the steps of a business process may run now. */
export function createGate({ processes, now, random, shutdown, rampMs }: GateDeps) {
  const dependsOnInternet = (): boolean =>
    [...processes.values()].some(({ requireInternet }) => requireInternet)
  let isOnline: boolean | null = null
  /**
   * The names of the paused business processes; `null` until they are read from the transaction source. Until then no
   * process runs, because otherwise a paused process would run for a moment at each start.
   */
  let paused: PausedNames | null = null
  /** The realms of the paused companies; `null` until they are read, for the same reason. */
  let pausedCompanies: PausedNames | null = null
  let rampEndsAt = 0
  return {
    /** Whether at least one process needs the internet to run its steps. */
    dependsOnInternet,
    /**
     * Whether the steps of the process may run now. No step runs while the worker shuts down or the process is paused. If
     * the process needs the internet, no step runs while the internet is unreachable.
     */
    isOpen: ({ name, requireInternet }: ProcessDefinition): boolean =>
      !shutdown.aborted &&
      paused?.has(name) === false &&
      pausedCompanies !== null &&
      (isOnline === true || !requireInternet),
    setOnline(online: boolean): void {
      if (dependsOnInternet() && online && isOnline === false) rampEndsAt = now() + rampMs
      isOnline = online
    },
    setPaused(names: PausedNames): void {
      paused = names
    },
    setPausedCompanies(realms: PausedNames): void {
      pausedCompanies = realms
    },
    /**
     * Returns the company of a run if it is paused, and `null` otherwise. Webhooks to other systems are delivered
     * nevertheless.
     */
    pausedCompanyOf: ({ Process, Realm }: Pick<Run, 'Process' | 'Realm'>): string | null =>
      Realm !== null && Process !== WEBHOOK_PROCESS && pausedCompanies?.has(Realm) === true
        ? Realm
        : null,
    /**
     * Waits for a random part of the ramp-up time when the internet becomes reachable, so that the waiting steps do not
     * all start at once.
     */
    async rampUp(): Promise<void> {
      const leftMs = rampEndsAt - now()
      if (leftMs > 0) await sleep(random() * leftMs, null, { signal: shutdown }).catch(() => {})
    },
  }
}
