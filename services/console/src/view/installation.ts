/** What the console knows about the installation, as plain values. The pages are computed from these values. */
import type {
  CredentialCounts,
  CredentialView,
} from '@integration-host/shared/contracts/credential'
import type { HealthReport } from '@integration-host/shared/observability/health'
import type { Samples } from './metric-text.ts'

/** One replica of a service, as far as the console could read it. */
export interface Replica {
  readonly address: string
  /** The number of consecutive failed checks; 0 while the replica responds. */
  readonly misses: number
  /**
   * The time at which the replica last began responding or stopped responding, in epoch
   * milliseconds.
   */
  readonly since: number
  /** Why the last check failed; `null` while the replica responds. */
  readonly reason: string | null
  /** The latest report; `null` before the first response. */
  readonly report: HealthReport | null
  readonly samples: Samples | null
  readonly clockOffsetMs: number | null
}

export interface ServiceState {
  readonly name: string
  readonly replicas: readonly Replica[]
}

/** A group of runs in the summary of a process. */
export interface RunGroup {
  readonly process: string
  readonly step: string | null
  readonly status: string
  readonly errorClass: string | null
  readonly waitingFor: string | null
  readonly count: number
  readonly inDoubt: number
  /**
   * The time at which the first of these runs ended, in epoch milliseconds; `null` if the runs have not ended, or if
   * the time is unknown.
   */
  readonly endedAt: number | null
}

export interface ProcessState {
  readonly name: string
  /** Whether a coordinator has loaded the process. */
  readonly isLoaded: boolean
  readonly needsInternet: boolean
  readonly isPaused: boolean
  readonly pausedAt: number | null
  readonly pausedBy: string | null
  readonly reason: string | null
  /** The time of the coordinator's count, in epoch milliseconds; `null` if the coordinator has not counted yet. */
  readonly countedAt: number | null
  /** The groups of unfinished, failed and cancelled runs; `null` before the coordinator's first audit. */
  readonly groups: readonly RunGroup[] | null
}

/** Everything that the console has read. A member is `null` before its first successful read. */
export interface Installation {
  readonly services: readonly ServiceState[]
  readonly companies: CredentialCounts | null
  /** The companies that fail or must be reconnected, at most 200. */
  readonly faulted: readonly CredentialView[]
  readonly processes: readonly ProcessState[] | null
  /**
   * The time of the last read of the companies and of the processes, in epoch milliseconds, if the service has not
   * responded since; `null` while the values are current.
   */
  readonly asOf: { readonly companies: number | null; readonly processes: number | null }
}

/** The value of `Installation.asOf` if all values of the installation are current. */
export const CURRENT: Installation['asOf'] = { companies: null, processes: null }

/** Returns the replicas of a service that respond. */
export const responding = ({ services }: Installation, name: string): readonly Replica[] =>
  services
    .filter((service) => service.name === name)
    .flatMap(({ replicas }) => replicas.filter(({ misses }) => misses === 0))
