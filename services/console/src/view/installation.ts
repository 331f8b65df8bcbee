/** What the console knows about the installation, as plain values. The pages are computed from these values. */
import type { Names } from '../isomorphic/texts.ts'
import type { CompanyPauseView } from '@integration-host/shared/contracts/company'
import type {
  CredentialCounts,
  CredentialView,
} from '@integration-host/shared/contracts/credential'
import type { MetricsSummary } from '@integration-host/shared/contracts/metrics-summary'
import type { HealthReport } from '@integration-host/shared/observability/health'

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
  /** The latest summary of its metrics; `null` before the first one, and of an earlier release, which has none. */
  readonly summary: MetricsSummary | null
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
  /** The provider's code and message with which the runs failed, a text from outside; `null` if there are none. */
  readonly providerError: string | null
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
  /** The names of the events about which persons decide; absent if there are none. */
  readonly decisions?: readonly string[]
  /** The time of the coordinator's count, in epoch milliseconds; `null` if the coordinator has not counted yet. */
  readonly countedAt: number | null
  /** The groups of unfinished, failed and cancelled runs; `null` before the coordinator's first audit. */
  readonly groups: readonly RunGroup[] | null
}

/** Everything that the console has read. A member is `null` before its first successful read. */
export interface Installation {
  readonly services: readonly ServiceState[]
  /** The time of the last read of the metrics, in epoch milliseconds. */
  readonly metricsAt: number | null
  readonly companies: CredentialCounts | null
  /** The companies that fail or must be reconnected, at most 200. */
  readonly faulted: readonly CredentialView[]
  readonly processes: readonly ProcessState[] | null
  /** The companies whose runs are paused; absent before the first successful read. */
  readonly paused?: readonly CompanyPauseView[]
  /** The names of the companies that are paused or that runs wait for, by realm, as far as they have names. */
  readonly companyNames?: Names
  /**
   * The time of the last read of the companies and of the processes, in epoch milliseconds, if the service has not
   * responded since; `null` while the values are current.
   */
  readonly asOf: { readonly companies: number | null; readonly processes: number | null }
}

/** Returns the replicas of a service that respond. */
export const responding = ({ services }: Installation, name: string): readonly Replica[] =>
  services
    .filter((service) => service.name === name)
    .flatMap(({ replicas }) => replicas.filter(({ misses }) => misses === 0))

/**
 * Returns the summaries of the metrics of a service. While none of its replicas responds, returns the last summaries, so
 * that a condition does not disappear because its service is unavailable.
 */
export function summariesOf(installation: Installation, name: string): readonly MetricsSummary[] {
  const up = responding(installation, name)
  const all = installation.services.find((service) => service.name === name)?.replicas ?? []
  const known = up.length > 0 ? up : all
  return known.flatMap(({ summary }) => summary ?? [])
}

/**
 * Returns what the coordinator has counted in the tables that all replicas share; `undefined` while none responds. The
 * counts of one replica are sufficient.
 */
export const coordinatorCounts = (installation: Installation): MetricsSummary['Coordinator'] =>
  responding(installation, 'coordinator').flatMap(({ summary }) => summary?.Coordinator ?? [])[0]
