import { hostname } from 'node:os'
import type { Health } from '@integration-host/shared/health'
import { honoListener, listen } from '@integration-host/shared/http-server'
import type { RunningService } from '@integration-host/shared/lifecycle'
import type { Logger } from '@integration-host/shared/logger'
import { headerStatuses } from '@integration-host/shared/contracts/transaction'
import type { MessageBus } from '@integration-host/shared/message-bus'
import { createMetrics, type Metrics } from '@integration-host/shared/metrics'
import { loadProcesses } from './adapters/folder/processes.ts'
import { createHttpCaller } from './adapters/http/http-call.ts'
import { createProbe } from './adapters/http/probe.ts'
import { onCredentialUsable } from './adapters/message-bus/credential-events.ts'
import { createStepQueue } from './adapters/message-bus/step-queue.ts'
import { joinTransactionEvents } from './adapters/message-bus/transaction-events.ts'
import { createApp } from './app.ts'
import { type EmbeddedConfig, probesOf } from './config.ts'
import type { ProcessDefinition } from './process/definition.ts'
import { createTransitionPublisher } from './worker/transition-publisher.ts'
import { watchConnectivity } from './worker/connectivity.ts'
import { createOperations } from './worker/operations.ts'
import { startPulls } from './worker/sweeper.ts'
import { createWorker, outlineOf, type WorkerDeps } from './worker/worker.ts'
import { createTransitionFeed } from './worker/transition-feed.ts'
import type { TransactionSource } from './transaction/transaction-source.ts'

export interface CoordinatorAdapters {
  readonly logger: Logger
  readonly health: Health
  readonly metrics?: Metrics
  readonly source: TransactionSource
  readonly bus: MessageBus
  /** Those of the folder `processes/` unless given. */
  readonly processes?: readonly ProcessDefinition[]
  /** Epoch ms; for distances only, the source has its own clock. */
  readonly now?: () => number
  /** Shorter times for tests. */
  readonly timing?: Pick<WorkerDeps, 'renewMs' | 'rampMs' | 'leaveMs'> & {
    readonly onlineIntervalMs?: number
    readonly offlineIntervalMs?: number
    readonly confirmMs?: number
  }
}

/** Starts the coordinator on the given source and bus, which stay the caller's to close. */
export async function startCoordinator(
  config: EmbeddedConfig,
  adapters: CoordinatorAdapters,
): Promise<RunningService> {
  const { logger, health, source, bus, now = Date.now, timing = {} } = adapters
  const metrics = adapters.metrics ?? createMetrics('coordinator')
  const owner = `${hostname()}:${process.pid}:${crypto.randomUUID().slice(0, 8)}`
  const random = Math.random
  const steps = metrics.counter('coordinator_steps_total', 'Steps by what they came to', [
    'process',
    'step',
    'outcome',
  ])
  const violations = metrics.gauge(
    'coordinator_violations',
    'Figures of the audit that must be 0',
    ['kind'],
  )
  const transactions = metrics.gauge('coordinator_transactions', 'Runs by status', ['status'])
  const due = metrics.gauge('coordinator_due_runs', 'Runs that a worker could take now, by step', [
    'process',
    'step',
  ])
  const oldestDue = metrics.gauge(
    'coordinator_oldest_due_seconds',
    'How long the first of the runs that a worker could take now has been due, by step; 0 when there is none',
    ['process', 'step'],
  )
  const buried = metrics.gauge('coordinator_dead_messages', 'Messages that were put aside', [
    'process',
  ])
  const swept = metrics.counter(
    'coordinator_sweep_publishes_total',
    'Step messages that the local pull sent for runs nobody had picked up',
  )
  const adopted = metrics.counter(
    'coordinator_runs_adopted_total',
    'Runs taken over from coordinators that are gone',
  )
  const online = metrics.gauge('coordinator_online', '1 while a probe reaches the internet')
  const stepTimes = metrics.histogram(
    'coordinator_step_duration_seconds',
    'Time from the start of a step until its outcome was recorded',
    ['process', 'step'],
  )

  const processes =
    adapters.processes === undefined
      ? await loadProcesses()
      : new Map(adapters.processes.map((definition) => [definition.name, definition]))

  // Opened top to bottom, closed bottom to top: intake first, then what is in hand, then what says so.
  await using stack = new AsyncDisposableStack()
  const leaving = new AbortController()
  const caller = stack.use(createHttpCaller())
  const feed = createTransitionFeed()
  const queue = createStepQueue(bus, owner)
  await Promise.all(
    [...processes.values()].map((definition) => queue.declare(outlineOf(definition))),
  )
  const events = stack.use(
    await joinTransactionEvents(bus, owner, (event) => {
      feed.add(event)
      // Cancelled at another replica: the call in hand here must not go on.
      if (event.Status === 'Cancelled') worker.abort(event)
    }),
  )
  const publisher = createTransitionPublisher({
    queue,
    feed,
    tell: events.tell,
    log: logger,
    firstStep: (name) => processes.get(name)?.stepNames[0],
  })
  stack.defer(() => publisher.settled())
  const worker = stack.use(
    createWorker({
      source,
      queue,
      publisher,
      processes,
      call: caller.call,
      gateway: { url: config.GATEWAY_URL, key: config.SERVICE_API_KEY[0].reveal() },
      settings: { demoApiUrl: config.DEMO_API_URL, dataDir: config.DATA_DIR },
      checkOnline: () => connectivity.check(),
      log: logger,
      owner,
      prefetch: config.PREFETCH,
      now,
      random,
      count: (name, step, outcome, ms) => {
        steps.inc({ process: name, step, outcome })
        if (ms !== undefined) stepTimes.observe({ process: name, step }, ms / 1_000)
      },
      ...timing,
    }),
  )
  const connectivity = stack.use(
    watchConnectivity({
      probes: probesOf(config).map(createProbe),
      onChange(isOnline) {
        online.set(isOnline ? 1 : 0)
        worker.setOnline(isOnline)
      },
      ...timing,
    }),
  )
  const operations = createOperations({ source, processes, publisher, worker })
  const credentials = await onCredentialUsable(bus, `${owner} credentials`, async (name) => {
    try {
      await operations.wake(name)
    } catch (error) {
      // They look again by themselves, only later.
      logger.warn({ err: error }, 'waiting transactions were not woken')
    }
  })
  stack.defer(() => credentials.cancel())
  stack.use(
    startPulls({
      source,
      queue,
      publisher,
      worker,
      processes,
      log: logger,
      random,
      localMs: config.LOCAL_PULL_SECONDS * 1_000,
      remoteMs: config.REMOTE_PULL_SECONDS * 1_000,
      prefetch: config.PREFETCH,
      onSweep: (count) => swept.inc(count),
      onAdopt: (count) => adopted.inc(count),
      async onAudit(audit) {
        for (const [kind, count] of Object.entries(audit.violations))
          violations.set({ kind }, count)
        for (const status of headerStatuses)
          transactions.set({ status }, audit.runsByStatus[status] ?? 0)
        for (const { name: process, stepNames } of processes.values())
          for (const step of stepNames) {
            // A row inserted by hand names no step: it is at the first. What has none left is not listed.
            const here = audit.dueBySteps.filter(
              (entry) => entry.process === process && (entry.step || stepNames[0]) === step,
            )
            const count = here.reduce((sum, runs) => sum + runs.due, 0)
            const oldestMs = Math.max(0, ...here.map((runs) => runs.oldestMs))
            due.set({ process, step }, count)
            oldestDue.set({ process, step }, oldestMs / 1_000)
          }
        for (const process of processes.keys()) {
          const count = await queue.buried(process)
          if (count !== null) buried.set({ process }, count)
        }
      },
    }),
  )
  const app = createApp({
    logger,
    health,
    metrics,
    keys: config.SERVICE_API_KEY,
    operations,
    source,
    worker,
    queue,
    processes,
    feed,
    leaving: leaving.signal,
  })
  const server = stack.use(
    await listen(honoListener(app), { host: config.HOST, port: config.PORT }),
  )
  stack.defer(() => leaving.abort())
  const owned = stack.move()
  return { url: server.url, [Symbol.asyncDispose]: () => owned.disposeAsync() }
}
