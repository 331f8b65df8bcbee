/** Turns the state of the installation into the pages of the console. */
import type { ChangeView, ConditionView, NowView } from '../contracts/now.ts'
import type { ReplicaView, ServicesView } from '../contracts/services.ts'
import { type Installation, type Replica, responding } from './installation.ts'
import { valueOf } from './metric-text.ts'
import { runCounts } from './run-counts.ts'
import type { Minute } from './run-tracker.ts'

export interface NowInput {
  readonly at: number
  readonly watchedSince: number
  readonly installation: Installation
  readonly conditions: readonly ConditionView[]
  readonly prometheusFailedSince: number | null
  readonly lastEnded: { readonly title: string; readonly at: number } | null
  readonly minutes: readonly Minute[]
  readonly changes: readonly ChangeView[]
  /** The times of the last reads of the logs; `null` if they are current. */
  readonly changesAsOf: readonly { readonly service: string; readonly at: number | null }[]
}

const iso = (ms: number): string => new Date(ms).toISOString()
const isoOrNull = (ms: number | null): string | null => (ms === null ? null : iso(ms))

export function nowView(input: NowInput): NowView {
  const { installation, lastEnded } = input
  const { companies } = installation
  return {
    At: iso(input.at),
    Conditions: [...input.conditions],
    PrometheusFailedSince:
      input.prometheusFailedSince === null ? null : iso(input.prometheusFailedSince),
    LastEnded: lastEnded === null ? null : { Title: lastEnded.title, At: iso(lastEnded.at) },
    Runs: runCounts(installation.processes),
    RunsOf: (installation.processes ?? []).flatMap(({ name }) => {
      const counts = runCounts(installation.processes, name)
      return counts === null ? [] : [{ Process: name, ...counts }]
    }),
    RunsAsOf: isoOrNull(installation.asOf.processes),
    HasRuns: hasRuns(input),
    Due: dueRuns(installation),
    Companies:
      companies === null
        ? null
        : {
            Total: companies.Total,
            Active: (companies.States.active ?? 0) + (companies.States.expiring ?? 0),
            Failing: companies.States.failing ?? 0,
            MustReconnect: companies.States.must_reconnect ?? 0,
          },
    CompaniesAsOf: isoOrNull(installation.asOf.companies),
    Minutes: [...input.minutes],
    WatchedSince: iso(input.watchedSince),
    Services: installation.services.map(({ name, replicas }) => ({
      Name: name,
      Ready: replicas.filter((replica) => stateOf(replica) === 'ready').length,
      Replicas: replicas.length,
    })),
    Changes: [...input.changes],
    ChangesAsOf: input.changesAsOf.flatMap(({ service, at }) =>
      at === null ? [] : [{ Service: service, At: iso(at) }],
    ),
  }
}

/** Whether there is any run, even one that completed long ago. */
function hasRuns({ installation, minutes }: NowInput): boolean {
  const counted = responding(installation, 'coordinator').flatMap(
    ({ samples }) => samples?.get('coordinator_transactions') ?? [],
  )
  return (
    counted.some(({ value }) => value > 0) ||
    Object.values(runCounts(installation.processes) ?? {}).some((count) => count > 0) ||
    minutes.some(({ Done }) => Done > 0)
  )
}

function dueRuns(installation: Installation): NowView['Due'] {
  const samples = responding(installation, 'coordinator')
    .map((replica) => replica.samples)
    .find((found) => found?.has('coordinator_due_runs'))
  if (samples === undefined || samples === null) return null
  const values = (name: string): number[] => (samples.get(name) ?? []).map(({ value }) => value)
  // The coordinator counts the due runs together with the groups of runs.
  const times = (installation.processes ?? []).flatMap(({ countedAt }) => countedAt ?? [])
  return {
    Count: Math.round(values('coordinator_due_runs').reduce((sum, value) => sum + value, 0)),
    OldestSeconds: Math.max(0, ...values('coordinator_oldest_due_seconds')),
    CountedAt: times.length === 0 ? null : iso(Math.min(...times)),
  }
}

const stateOf = ({ misses, report }: Replica): ReplicaView['State'] =>
  misses > 0 || report === null ? 'unreachable' : report.status

export const servicesView = ({ services }: Installation, at: number): ServicesView => ({
  At: iso(at),
  Services: services.map(({ name, replicas }) => ({
    Name: name,
    Replicas: replicas.map(replicaView),
  })),
})

function replicaView(replica: Replica): ReplicaView {
  const { samples, report } = replica
  const state = stateOf(replica)
  const startedAt = valueOf(samples, 'process_start_time_seconds')
  const lag = valueOf(samples, 'nodejs_eventloop_lag_p99_seconds')
  return {
    Address: replica.address,
    State: state,
    Since: iso(replica.since),
    Reason: replica.reason,
    Dependencies:
      state === 'unreachable'
        ? []
        : Object.entries(report?.dependencies ?? {}).map(([name, dependency]) => ({
            Name: name,
            Status: dependency.status,
            Since: dependency.since,
            Reason: dependency.status === 'up' ? null : dependency.reason,
            Notes: dependency.notes ?? [],
          })),
    Version: samples?.get('service_info')?.[0]?.labels['version'] ?? null,
    StartedAt: startedAt === null ? null : iso(startedAt * 1_000),
    LagMs: lag === null ? null : Math.round(lag * 1_000),
    MemoryBytes: valueOf(samples, 'process_resident_memory_bytes'),
    ClockOffsetMs: replica.clockOffsetMs,
  }
}
