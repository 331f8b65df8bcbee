/**
 * Watches the installation, and adds a frame to the event stream whenever a page of the console changes. The browsers
 * read what this module has in memory, so they cause no requests to the services.
 */
import { ProblemError, statusOf } from '@integration-host/client/problem'
import { realmWaitedFor } from '@integration-host/shared/contracts/run'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { CompanyNames } from './adapters/peers/company-names.ts'
import type { InstallationReader } from './adapters/peers/installation-reader.ts'
import type { ReplicaReader } from './adapters/peers/replicas.ts'
import type { ServiceClient } from './adapters/peers/service-client.ts'
import { followTransitions } from './adapters/peers/transition-stream.ts'
import type { ReadAlerts } from './adapters/prometheus/prometheus.ts'
import type { NowView } from './contracts/now.ts'
import type { ServicesView } from './contracts/services.ts'
import { ALERTS_MS, CHANGES_MS, COMPANIES_MS, HEALTH_MS, PROCESSES_MS } from './read-intervals.ts'
import { type ReadLoop, startReadLoop } from './read-loop.ts'
import { changesOf } from './view/changes.ts'
import { createConditionTimes } from './view/condition.ts'
import { conditionsOf } from './view/conditions.ts'
import { type FiringAlert, withFiringAlerts } from './view/firing-alerts.ts'
import type { Frames } from './view/frames.ts'
import type { Installation, ProcessState, ServiceState } from './view/installation.ts'
import { nowView, servicesView } from './view/pages.ts'
import { createRunTracker, totalOf } from './view/run-tracker.ts'

/** Values are outdated if the last successful read is longer ago than this. */
const OUTDATED_MS = 12_000
/** The metrics are read with every third check of the health. */
const CHECKS_PER_METRICS = 3
/** The minimum time between two changes of the page Now that are caused by transitions of runs. */
export const TRANSITIONS_MS = 1_000
/** How long the first transition waits for further ones, because a batch of the coordinator arrives in several chunks. */
const BATCH_MS = 50
/** The maximum number of runs that a frame names. */
const MAX_NAMED_RUNS = 200

export interface InstallationWatchDeps {
  readonly coordinator: ServiceClient
  readonly reader: InstallationReader
  readonly companyNames: CompanyNames
  /** The readers of the replicas by the name of their service, in the order of the page Health. */
  readonly replicas: ReadonlyMap<string, ReplicaReader>
  readonly frames: Frames
  /** Reads the firing alerts of Prometheus; `null` without `PROMETHEUS_URL`. */
  readonly readAlerts: ReadAlerts | null
  readonly logger: Logger
}

export interface InstallationWatch extends AsyncDisposable {
  now(): NowView
  services(): ServicesView
  /** Returns what has been read so far. */
  installation(): Installation
  /**
   * Reads again what an action of a person may have changed: companies, processes and logs. Resolves when the pages have
   * the new state.
   */
  readAgain(): Promise<void>
  /** Resolves when the first check of every service has ended. */
  readonly checked: Promise<void>
}

/** Returns `readAt`, the time of the last successful read, if the values are outdated; otherwise `null`. */
const outdated = (readAt: number | null): number | null =>
  readAt !== null && Date.now() - readAt > OUTDATED_MS ? readAt : null

export function watchInstallation(deps: InstallationWatchDeps): InstallationWatch {
  const { reader, readAlerts, frames, logger } = deps
  const watchedSince = Date.now()
  const closing = new AbortController()
  const { signal } = closing
  const tracker = createRunTracker()
  const times = createConditionTimes()
  let companies: Pick<Installation, 'companies' | 'faulted'> = { companies: null, faulted: [] }
  let processes: readonly ProcessState[] | null = null
  let paused: NonNullable<Installation['paused']> = []
  let companyNames: NonNullable<Installation['companyNames']> = {}
  /** The times of the last successful reads; `null` before the first one. */
  const readAt: Record<'companies' | 'processes' | 'actions' | 'audit', number | null> = {
    companies: null,
    processes: null,
    actions: null,
    audit: null,
  }
  let services: readonly ServiceState[] = []
  let metricsAt: number | null = null
  let actions: Awaited<ReturnType<InstallationReader['readActions']>> = []
  let audit: Awaited<ReturnType<InstallationReader['readAudit']>> = { audit: [], names: {} }
  let changes: NowView['Changes'] = []
  let alerts: readonly FiringAlert[] = []
  let prometheusFailedSince: number | null = null
  let shownNow = ''
  let shownServices = ''
  let transitionTimer: NodeJS.Timeout | null = null
  let transitionsShownAt = -TRANSITIONS_MS
  /** The transactions that have changed since the last frame. Each is a JSON text of its process and id. */
  const changed = new Set<string>()
  /** Whether transitions were missed since the last frame, so that any run may have changed. */
  let hasGap = false

  const installation = (): Installation => ({
    ...companies,
    paused,
    companyNames,
    services,
    metricsAt,
    asOf: { companies: outdated(readAt.companies), processes: outdated(readAt.processes) },
    processes:
      processes?.map((process) => ({
        ...process,
        groups:
          process.groups === null || process.countedAt === null
            ? null
            : tracker.corrected(process.name, process.groups, process.countedAt),
      })) ?? null,
  })

  let latest = build()
  function build(): { readonly now: NowView; readonly services: ServicesView } {
    const at = Date.now()
    const state = installation()
    return {
      now: nowView({
        at,
        watchedSince,
        installation: state,
        conditions: times.dated(withFiringAlerts(conditionsOf(state), alerts), at),
        prometheusFailedSince,
        lastEnded: times.lastEnded,
        minutes: tracker.minutes(at),
        lastHour: (process) => totalOf(tracker.minutes(at, process)),
        changes,
        changesAsOf: [
          { service: 'coordinator', at: outdated(readAt.actions) },
          { service: 'token-service', at: outdated(readAt.audit) },
        ],
      }),
      services: servicesView(state, at),
    }
  }

  /**
   * Adds a frame for each page that has changed since its last frame. A page whose only change is the time of the last
   * check gets no frame.
   */
  function publish(): void {
    latest = build()
    const { At: _nowAt, ...now } = latest.now
    const { At: _servicesAt, ...shown } = latest.services
    const nowText = JSON.stringify(now)
    const servicesText = JSON.stringify(shown)
    if (nowText !== shownNow) frames.add('now', latest.now)
    if (servicesText !== shownServices) frames.add('services', latest.services)
    shownNow = nowText
    shownServices = servicesText
  }

  /** Adds a frame with the runs that have changed since the last frame. */
  function publishRuns(): void {
    transitionTimer = null
    transitionsShownAt = performance.now()
    frames.add('runs', {
      Runs: [...changed].slice(0, MAX_NAMED_RUNS).map((run): unknown => JSON.parse(run)),
      More: hasGap || changed.size > MAX_NAMED_RUNS,
    })
    hasGap = false
    changed.clear()
    publish()
  }

  function publishRunsSoon(): void {
    const waitMs = transitionsShownAt + TRANSITIONS_MS - performance.now()
    transitionTimer ??= setTimeout(publishRuns, Math.max(BATCH_MS, waitMs))
  }

  let isKeyRejected = false
  function logFailure(error: unknown): void {
    // If a service does not respond, a condition on the page Now reports this, so the failure is not logged. The pages
    // keep the state that was read last.
    const status = error instanceof ProblemError ? statusOf(error) : undefined
    if (status === undefined) logger.error({ err: error }, 'state of a service could not be read')
    else if ((status === 401 || status === 403) && !isKeyRejected) {
      isKeyRejected = true // every read fails until the key is replaced, so this is logged once
      logger.error(
        { status, remedy: 'check OPERATOR_API_KEY and its scopes' },
        'a service rejects the key of the console',
      )
    }
  }

  const repeat = (everyMs: number, read: () => Promise<void>): ReadLoop =>
    startReadLoop(
      async () => {
        try {
          await read()
        } catch (error) {
          logFailure(error)
        }
        publish()
      },
      everyMs,
      signal,
    )

  /**
   * Reads the alerts. If this fails, the console keeps the alerts that it read last, and the page Now reports the
   * failure.
   */
  async function followAlerts(read: ReadAlerts): Promise<void> {
    try {
      alerts = await read()
      prometheusFailedSince = null
    } catch (error) {
      if (prometheusFailedSince === null)
        logger.warn({ err: error }, 'the alerts of Prometheus could not be read')
      prometheusFailedSince ??= Date.now()
    }
  }

  let checks = 0
  const { promise: checked, resolve: onChecked } = Promise.withResolvers<void>()
  const checking = repeat(HEALTH_MS, async () => {
    const withMetrics = checks % CHECKS_PER_METRICS === 0
    checks += 1
    services = await Promise.all(
      [...deps.replicas].map(async ([name, replicaReader]) => ({
        name,
        replicas: await replicaReader.read(withMetrics),
      })),
    )
    if (withMetrics) metricsAt = Date.now()
    onChecked()
  })
  const acted = [
    repeat(COMPANIES_MS, async () => {
      const { counts, faulted } = await reader.readCompanies()
      companies = { companies: counts, faulted }
      readAt.companies = Date.now()
    }),
    repeat(CHANGES_MS, async () => {
      // If one of the two services does not respond, the log of the other one is read nevertheless.
      const read = await Promise.allSettled([
        reader.readActions().then((newest) => {
          actions = newest
          readAt.actions = Date.now()
        }),
        reader.readAudit().then((newest) => {
          audit = newest
          readAt.audit = Date.now()
        }),
      ])
      changes = [...changesOf(actions, audit.audit, audit.names)]
      for (const result of read) if (result.status === 'rejected') logFailure(result.reason)
    }),
    repeat(PROCESSES_MS, async () => {
      ;[processes, paused] = await Promise.all([
        reader.readProcesses(),
        reader.readPausedCompanies(),
      ])
      readAt.processes = Date.now()
      const waits = processes.flatMap(({ groups }) => groups ?? [])
      companyNames = await deps.companyNames.of([
        ...paused.map(({ Realm }) => Realm),
        ...waits.flatMap(({ waitingFor }) => realmWaitedFor(waitingFor) ?? []),
      ])
    }),
  ]
  const loops = [
    checking,
    ...acted,
    ...(readAlerts === null ? [] : [repeat(ALERTS_MS, () => followAlerts(readAlerts))]),
  ]
  const following = followTransitions(
    deps.coordinator,
    {
      onEvent(event) {
        tracker.follow(event)
        if (changed.size <= MAX_NAMED_RUNS)
          changed.add(JSON.stringify([event.Process, event.TransactionID]))
        publishRunsSoon()
      },
      onGap() {
        hasGap = true
        publishRunsSoon()
      },
    },
    signal,
  )

  return {
    now: () => latest.now,
    services: () => latest.services,
    installation,
    async readAgain() {
      await Promise.all(acted.map((loop) => loop.readAgain()))
    },
    checked,
    async [Symbol.asyncDispose]() {
      closing.abort()
      if (transitionTimer !== null) clearTimeout(transitionTimer)
      await Promise.all([following, ...loops.map(({ ended }) => ended)])
    },
  }
}
