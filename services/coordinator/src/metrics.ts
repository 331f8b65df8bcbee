import { readWaitingFor } from '@integration-host/shared/contracts/run'
import type { ServiceSummary } from '@integration-host/shared/contracts/metrics-summary'
import { headerStatuses } from '@integration-host/shared/contracts/transaction'
import type { Metrics } from '@integration-host/shared/observability/metrics'
import type { ProcessDefinition } from './step/definition.ts'
import { type KeyRing, watchDecryptionFailures } from '@integration-host/shared/secrets/envelope'
import type { CutReason } from './events/event-stream-routes.ts'
import type { ResealingProgress } from './resealing/resealing.ts'
import type { EntryCount } from './entry/book-entry.ts'
import type { Audit, RunGroup } from './run/audit.ts'
import type { WebhookBacklog } from './webhook/webhook-backlog.ts'
import type { ChangeResult } from './change/change-intake.ts'
import type { StartResult } from './start/start-intake.ts'
import type { WaitingMessages } from './worker/waiting-messages.ts'
import type { ScheduleLag } from './schedule/scheduler.ts'
import type { RetentionAges } from './retention/purge.ts'

type Summary = NonNullable<ServiceSummary['Coordinator']>

/** Counts and sets the metrics that only the coordinator has. */
export type CoordinatorMetrics = ReturnType<typeof createCoordinatorMetrics>

export function createCoordinatorMetrics(
  metrics: Metrics,
  processes: ReadonlyMap<string, ProcessDefinition>,
  /** Returns the number of dead letters of each process, in the table and in the queue. */
  countDeadLetters: () => Promise<ReadonlyMap<string, number>>,
  countWaiting: () => Promise<readonly WaitingMessages[]>,
) {
  const steps = metrics.counter('coordinator_steps_total', 'Steps by outcome', [
    'process',
    'step',
    'outcome',
  ])
  const stepTimes = metrics.histogram(
    'coordinator_step_duration_seconds',
    'Time from the start of a step until its outcome was recorded',
    ['process', 'step'],
  )
  const violations = metrics.gauge('coordinator_violations', 'Counts of the audit that must be 0', [
    'kind',
  ])
  const transactions = metrics.gauge(
    'coordinator_transactions',
    'Runs by status; large numbers are lower bounds, that of completed runs an estimate',
    ['status'],
  )
  const inDoubt = metrics.gauge(
    'coordinator_runs_in_doubt',
    'Runs of which an attempt may have done its work, by state: unfinished or ended',
    ['state'],
  )
  const waitingRuns = metrics.gauge(
    'coordinator_waiting_runs',
    'Unfinished runs that wait: for a credential, for a slot because their process has a limit (concurrency), for the resume of their company (paused), or at a place for an event or a change',
    ['for'],
  )
  const entriesOutside = metrics.gauge(
    'coordinator_entries_outside',
    'Objects that runs have written, and that were found changed, voided, deleted or missing within a day',
    ['state', 'entity'],
  )
  const due = metrics.gauge('coordinator_due_runs', 'Runs that a worker could claim now, by step', [
    'process',
    'step',
  ])
  const oldestDue = metrics.gauge(
    'coordinator_oldest_due_seconds',
    'How long the oldest of the runs that a worker could claim now has been due, by step; 0 if there is none',
    ['process', 'step'],
  )
  const deadMessages = metrics.gauge(
    'coordinator_dead_messages',
    'Dead letters, in the table and still in the queue',
    ['process'],
  )
  const waitingMessages = metrics.gauge(
    'coordinator_waiting_messages',
    'Messages in the queues start.<Process>, on.<Process>, changes.<Process> and entries.<Process>, by the kind of the queue, that no coordinator has taken yet',
    ['process', 'kind'],
  )
  const swept = metrics.counter(
    'coordinator_sweep_publishes_total',
    'Step messages that the sweeper published again for overdue runs',
  )
  const recovered = metrics.counter(
    'coordinator_runs_adopted_total',
    'Runs whose lease a lost coordinator let expire, and that were made due again',
  )
  const watchers = metrics.gauge('coordinator_event_watchers', 'Clients that read /events now')
  const waitingRequests = metrics.gauge(
    'coordinator_waiting_requests',
    'Requests that wait for the end of a run now',
  )
  const cutStreams = metrics.counter(
    'coordinator_event_streams_cut_total',
    'Streams of /events that were cut off because the client did not read, by limit',
    ['reason'],
  )
  const purgedRuns = metrics.counter(
    'coordinator_purged_runs_total',
    'Finished runs whose data this replica has removed, because their retention was over',
    ['process'],
  )
  const forgottenRuns = metrics.counter(
    'coordinator_forgotten_runs_total',
    'Ids of purged runs that this replica has removed after DEDUPE_DAYS',
  )
  const oldestRun = metrics.gauge(
    'coordinator_oldest_run_seconds',
    'How long ago the oldest finished run ended that is not purged; 0 if there is none',
    ['process'],
  )
  const lastPass = metrics.gauge(
    'coordinator_retention_pass_age_seconds',
    'How long ago any replica completed a pass that purges old runs; since the start of this replica if none did',
  )
  const webhooksWaiting = metrics.gauge(
    'coordinator_webhooks_waiting',
    'Webhooks that a receiver has not got yet',
    ['receiver'],
  )
  const oldestWebhook = metrics.gauge(
    'coordinator_webhook_oldest_seconds',
    'Time since the oldest event that a receiver has not got yet',
    ['receiver'],
  )
  const bulkOperations = metrics.gauge(
    'coordinator_operations',
    'Bulk operations that are not over, by status',
    ['status'],
  )
  const bulkRuns = metrics.counter(
    'coordinator_operation_runs_total',
    'Runs of bulk operations by outcome, dry runs excluded',
    ['action', 'outcome'],
  )
  const outdatedPayloads = metrics.gauge(
    'coordinator_payloads_outdated',
    'Payloads in plain text or sealed with another key than this one, as far as the last pass over the tables has come',
    ['key'],
  )
  const startMessages = metrics.counter(
    'coordinator_start_messages_total',
    'Messages of the queues start.<Process> by result: queued, absorbed, exists, or the reason of the dead letter',
    ['process', 'result'],
  )
  const scheduledRuns = metrics.counter(
    'coordinator_scheduled_runs_total',
    'Runs that this replica has queued at the times of a schedule',
    ['process', 'schedule'],
  )
  const scheduleLag = metrics.gauge(
    'coordinator_schedule_lag_seconds',
    'How long the next time of a schedule has passed without its runs; 0 while the schedule is on time or paused',
    ['process', 'schedule'],
  )
  const changeFeedLag = metrics.gauge(
    'coordinator_change_feed_lag_seconds',
    'How far the change feed of a connected company was read back; the largest of all companies',
  )
  const changes = metrics.counter(
    'coordinator_changes_total',
    'Events of the queues on.<Process> by result: queued, absorbed, exists, unwanted, unknown_realm, or that of the dead letter',
    ['process', 'result'],
  )
  const online = metrics.gauge('coordinator_online', '1 while a probe reaches the internet')

  const outcomes: Record<string, number> = {}
  /** When this process ended the last attempt of each step, as JSON texts of process and step. */
  const stepEndedAt = new Map<string, number>()
  const startedAt = performance.now()
  let isOnline: boolean | null = null
  let outside: readonly EntryCount[] = []
  let latest: Pick<Summary, 'Runs' | 'DeadLetters' | 'Violations'> & {
    readonly due: readonly Omit<Summary['Due'][number], 'IdleSeconds'>[]
  } = { Runs: {}, DeadLetters: {}, Violations: {}, due: [] }
  metrics.summarize(() => {
    const { due: runs, ...counts } = latest
    const idleSeconds = (process: string, step: string): number => {
      const endedAt = stepEndedAt.get(JSON.stringify([process, step])) ?? startedAt
      return Math.round((performance.now() - endedAt) / 1_000)
    }
    return {
      Coordinator: {
        ...counts,
        Steps: outcomes,
        Due: runs.map((one) => ({ ...one, IdleSeconds: idleSeconds(one.Process, one.Step) })),
        ...(outside.length > 0 && { EntriesOutside: [...outside] }),
        Online: isOnline,
      },
    }
  })

  return {
    /** Counts the outcome of a step. `ms`, the duration of the step, is given only if the outcome was recorded. */
    countStep: (process: string, step: string, outcome: string, ms?: number) => {
      steps.inc({ process, step, outcome })
      outcomes[outcome] = (outcomes[outcome] ?? 0) + 1
      stepEndedAt.set(JSON.stringify([process, step]), performance.now())
      if (ms !== undefined) stepTimes.observe({ process, step }, ms / 1_000)
    },
    countSwept: (count: number) => swept.inc(count),
    countRecovered: (count: number) => recovered.inc(count),
    setOnline: (next: boolean) => {
      isOnline = next
      online.set(next ? 1 : 0)
    },
    /** Sets how many objects that runs have written were found changed or gone within a day. */
    setEntriesOutside: (counts: readonly EntryCount[]) => {
      outside = counts
      entriesOutside.reset()
      for (const { State: state, Entity: entity, Count } of counts)
        entriesOutside.set({ state, entity }, Count)
    },
    countCutStream: (reason: CutReason) => cutStreams.inc({ reason }),
    /** Registers a function that returns the number of open event streams. Each scrape calls the function. */
    watchStreams: (count: () => number) => metrics.beforeEach(() => watchers.set(count())),
    /** Registers a function that returns the number of requests that wait for the end of a run. */
    watchWaiting: (count: () => number) => metrics.beforeEach(() => waitingRequests.set(count())),
    setWebhookBacklog: (backlog: readonly WebhookBacklog[]) => {
      // Removes the metrics of receivers that no longer have undelivered webhooks. The backlog does not list such
      // receivers.
      webhooksWaiting.reset()
      oldestWebhook.reset()
      for (const { receiver, waiting, oldestMs } of backlog) {
        webhooksWaiting.set({ receiver }, waiting)
        oldestWebhook.set({ receiver }, oldestMs / 1_000)
      }
    },
    setOperations: (counts: Readonly<Record<'Running' | 'Paused', number>>) => {
      for (const [status, count] of Object.entries(counts)) bulkOperations.set({ status }, count)
    },
    /** Counts an event of the queue `on.<process>`. */
    countChange: (process: string, result: ChangeResult) => changes.inc({ process, result }),
    /** Counts a message of the queue `start.<process>`. */
    countStart: (process: string, result: StartResult) => startMessages.inc({ process, result }),
    countBulkRun: (action: string, outcome: string) => bulkRuns.inc({ action, outcome }),
    /** Counts the runs of a process that were purged, and the ids that were deleted. */
    countPurged: (process: string, count: number) => purgedRuns.inc({ process }, count),
    countForgotten: (count: number) => forgottenRuns.inc(count),
    /** Sets the age of the oldest finished run of each process, and the time since the last completed retention pass. */
    setRetention: ({ oldestMs, lastPassMs }: RetentionAges) => {
      for (const process of processes.keys())
        oldestRun.set({ process }, (oldestMs.get(process) ?? 0) / 1_000)
      lastPass.set(lastPassMs / 1_000)
    },
    setResealing: (progress: ResealingProgress | null) => {
      outdatedPayloads.reset()
      if (typeof progress?.outdated === 'number')
        outdatedPayloads.set({ key: progress.keyId }, progress.outdated)
    },
    countScheduled: (process: string, schedule: string, count: number) =>
      scheduledRuns.inc({ process, schedule }, count),
    /** Sets the largest lag of the change feeds of connected companies, in ms. */
    setChangeFeedLag: (lagMs: number) => changeFeedLag.set(lagMs / 1_000),
    /** Sets the lag of each schedule of this coordinator. */
    setScheduleLags: (lags: readonly ScheduleLag[]) => {
      scheduleLag.reset() // removes the metrics of schedules that are no longer in the list
      for (const { lagMs, ...schedule } of lags) scheduleLag.set(schedule, lagMs / 1_000)
    },
    setAudit: async (audit: Audit) => {
      for (const [kind, count] of Object.entries(audit.violations)) violations.set({ kind }, count)
      for (const status of headerStatuses)
        transactions.set({ status }, audit.runsByStatus[status] ?? 0)
      const inDoubtOf = (groups: readonly RunGroup[]): number =>
        groups.reduce((total, { InDoubt }) => total + InDoubt, 0)
      for (const kind of ['credential', 'concurrency', 'paused', 'event', 'change', 'books']) {
        const groups = audit.unfinished.filter(
          ({ Status, WaitingFor }) =>
            Status === 'Waiting' && (readWaitingFor(WaitingFor)?.kind ?? 'credential') === kind,
        )
        waitingRuns.set(
          { for: kind },
          groups.reduce((total, { Count }) => total + Count, 0),
        )
      }
      inDoubt.set({ state: 'unfinished' }, inDoubtOf(audit.unfinished))
      inDoubt.set({ state: 'ended' }, inDoubtOf(audit.endedBadly))
      const dueRuns: (typeof latest)['due'][number][] = []
      for (const { name: process, stepNames } of processes.values())
        for (const step of stepNames) {
          // A row that another program has inserted may have no step name: its run is at the first step. The audit
          // lists only steps with due runs, so the metrics of all other steps are set to 0.
          const here = audit.dueBySteps.filter(
            (entry) => entry.process === process && (entry.step || stepNames[0]) === step,
          )
          const count = here.reduce((sum, runs) => sum + runs.due, 0)
          const oldestMs = Math.max(0, ...here.map((runs) => runs.oldestMs))
          due.set({ process, step }, count)
          oldestDue.set({ process, step }, oldestMs / 1_000)
          dueRuns.push({
            Process: process,
            Step: step,
            Count: count,
            OldestSeconds: oldestMs / 1_000,
          })
        }
      const deadLetters = await countDeadLetters()
      // The metrics of a process that is no longer loaded are set only while it has dead letters.
      deadMessages.reset()
      for (const [process, count] of deadLetters) deadMessages.set({ process }, count)
      latest = {
        Runs: Object.fromEntries(
          headerStatuses.map((status) => [status, audit.runsByStatus[status] ?? 0]),
        ),
        Violations: { ...audit.violations },
        DeadLetters: Object.fromEntries(deadLetters),
        due: dueRuns,
      }
      for (const { process, kind, count } of await countWaiting())
        waitingMessages.set({ process, kind }, count)
    },
  }
}

/**
 * Returns the keys that encrypt payloads; `null` if `PAYLOAD_KEYS` is not set. Each payload that these keys cannot
 * decrypt is counted in a metric.
 *
 * The keys are derived from the keys in `PAYLOAD_KEYS`. So they differ from the keys of credentials, even if the
 * operator sets `PAYLOAD_KEYS` and `CREDENTIAL_KEYS` to the same value.
 */
export function payloadKeysOf(keys: KeyRing | undefined, metrics: Metrics): KeyRing | null {
  const failures = metrics.counter(
    'coordinator_payloads_unreadable_total',
    'Reads of payloads that could not be decrypted: changed, moved, or sealed with a missing key',
  )
  if (keys === undefined) return null
  return watchDecryptionFailures(keys.derive('payload'), () => failures.inc())
}
