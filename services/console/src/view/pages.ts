/** Turns the state of the installation into the pages of the console. */
import type { ChangeView, ConditionView, NowView } from '../contracts/now.ts'
import type { ReplicaView, ServicesView } from '../contracts/services.ts'
import { coordinatorCounts, type Installation, type Replica } from './installation.ts'
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
  /** Returns the runs of a process that ended within the last hour. */
  readonly lastHour: (process: string) => Minute
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
      return counts === null ? [] : [{ Process: name, ...counts, LastHour: input.lastHour(name) }]
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
  return (
    Object.values(coordinatorCounts(installation)?.Runs ?? {}).some((count) => count > 0) ||
    Object.values(runCounts(installation.processes) ?? {}).some((count) => count > 0) ||
    minutes.some(({ Done }) => Done > 0)
  )
}

function dueRuns(installation: Installation): NowView['Due'] {
  const due = coordinatorCounts(installation)?.Due ?? []
  if (due.length === 0) return null
  // The coordinator counts the due runs together with the groups of runs.
  const times = (installation.processes ?? []).flatMap(({ countedAt }) => countedAt ?? [])
  return {
    Count: due.reduce((sum, { Count }) => sum + Count, 0),
    OldestSeconds: Math.max(...due.map(({ OldestSeconds }) => OldestSeconds)),
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
  const { summary, report } = replica
  const state = stateOf(replica)
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
    Version: summary?.Version ?? null,
    StartedAt: summary?.StartedAt ?? null,
    LagMs: summary?.LagMs ?? null,
    MemoryBytes: summary?.MemoryBytes ?? null,
    ClockOffsetMs: replica.clockOffsetMs,
  }
}
