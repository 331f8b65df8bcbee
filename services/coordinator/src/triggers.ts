/**
 * Creates and connects the parts that start runs without a request to the HTTP API: schedules, messages, the provider's
 * events, and the change feed.
 */
import { realmOf } from '@integration-host/shared/contracts/realm'
import { hasCode } from '@integration-host/shared/errors'
import { tracing } from '@integration-host/shared/observability/telemetry'
import { StartupError } from '@integration-host/shared/process/lifecycle'
import type { ChangeCursors } from './change-feed/change-cursors.ts'
import type { Subscriptions } from './change/subscriptions.ts'
import { createStartQueue } from './start/start-queue.ts'
import { CHANGE_FEED, SWEEP_SCHEDULE } from './change-feed/sweep.ts'
import { startFeedWatch } from './change-feed/watch-feed.ts'
import { type ConnectedCompanies, createKnownCompanies } from './company/connected-companies.ts'
import type { Core } from './core.ts'
import {
  hasChanges,
  hasEvents,
  isStartable,
  outlineOf,
  type ProcessDefinition,
} from './step/definition.ts'
import { startChangeIntake, startLookIntake } from './change/change-intake.ts'
import { CHANGE_LOOK, type Looks } from './change/look.ts'
import { startEntryIntake } from './entry/entry-intake.ts'
import type { PausedNames } from './worker/gate.ts'
import type { RunActions } from './worker/run-actions.ts'
import { createScheduleStore } from './schedule/schedule-store.ts'
import { createScheduleOperations, startScheduler } from './schedule/scheduler.ts'
import { queuedRuns } from './run/transaction-source.ts'
import { signalKey } from '@integration-host/shared/contracts/topology'
import { startSignalIntake } from './signal/signal-intake.ts'
import { startStartIntake } from './start/start-intake.ts'

/** @throws {StartupError} if a process of the user has the name of a built-in process. */
export function requireFreeName(
  processes: ReadonlyMap<string, ProcessDefinition>,
  name: string,
): void {
  const known = processes.get(name)
  if (known !== undefined && known.runBuiltIn === undefined)
    throw new StartupError(`the process name ${name} is that of a built-in process`)
}

/** Returns whether at least one process subscribes to changes, so that the change feed must be read. */
export function needsChangeFeed(processes: ReadonlyMap<string, ProcessDefinition>): boolean {
  requireFreeName(processes, CHANGE_FEED)
  return [...processes.values()].some((process) => process.on.length > 0 || hasChanges(process))
}

/** Returns whether runs of at least one process wait for changes, so that objects must be read. */
export function needsLooks(processes: ReadonlyMap<string, ProcessDefinition>): boolean {
  requireFreeName(processes, CHANGE_LOOK)
  return [...processes.values()].some(hasChanges)
}

export interface TriggersDeps extends Core {
  readonly cursors: ChangeCursors
  /** Begins to read the change feed if it is needed. Resolves with whether it is read. */
  readonly readFeed: () => Promise<boolean>
  readonly subscriptions: Subscriptions
  readonly looks: Looks
  readonly companies: ConnectedCompanies
  readonly runActions: RunActions
  /** `REMOTE_PULL_SECONDS`, in milliseconds. */
  readonly remotePullMs: number
}

export type Triggers = ReturnType<typeof startTriggers>

export function startTriggers(deps: TriggersDeps) {
  const { source, bus, processes, companies, publisher, metrics, clock, owner } = deps
  const intake = { ...deps, isBatched: tracing === undefined, isDurable: bus.isDurable }
  const store = createScheduleStore(source)
  const stack = new AsyncDisposableStack()
  const scheduler = stack.use(
    startScheduler({
      ...deps,
      store,
      onRuns: metrics.countScheduled,
      onLags: metrics.setScheduleLags,
    }),
  )
  const { now } = clock
  const schedules = createScheduleOperations({ ...deps, store, scheduler, now })
  const feed = stack.use(
    startFeedWatch({
      ...deps,
      intervalMs: deps.remotePullMs,
      async isActive() {
        if (!(await deps.readFeed())) return false
        const { rows } = await schedules.list()
        // Directly after the start, a schedule may not be stored yet. Such a schedule counts as not paused.
        return !rows.some(({ Process, PausedAt }) => Process === CHANGE_FEED && PausedAt !== null)
      },
      async sweepAll(reason) {
        const by = { keyId: 'coordinator:change-feed', person: null }
        try {
          await schedules.run(CHANGE_FEED, SWEEP_SCHEDULE, { by, reason, ifVersion: null })
        } catch (error) {
          // This error means that another call is already queueing the sweeps of all companies.
          if (!hasCode(error, 'schedule_in_progress')) throw error
        }
      },
      async sweepOne(Realm, TransactionID) {
        const definition = processes.get(CHANGE_FEED)
        if (definition === undefined) return
        const transaction = { TransactionID, Realm, InitialData: null }
        publisher.publishSteps(queuedRuns(await source.queue(outlineOf(definition), [transaction])))
      },
      onLag: metrics.setChangeFeedLag,
    }),
  )
  const starts = stack.use(
    startStartIntake({
      ...intake,
      queue: createStartQueue(bus, owner),
      processes: () => [...processes.values()].filter(isStartable).map(({ name }) => name),
      count: metrics.countStart,
    }),
  )
  const signals = stack.use(
    startSignalIntake({
      ...intake,
      queue: createStartQueue(bus, owner, signalKey),
      processes: () => [...processes.values()].filter(hasEvents).map(({ name }) => name),
    }),
  )
  const changes = stack.use(
    startChangeIntake({
      ...intake,
      isConnected: createKnownCompanies({
        isConnected: (realm) => companies.isConnected(realm),
        now,
      }),
      onDelivery: feed.onDelivery,
      count: metrics.countChange,
    }),
  )
  const looks = stack.use(startLookIntake(intake))
  const entries = stack.use(startEntryIntake(intake))
  const intakes = [starts, signals, changes, looks, entries]
  return {
    schedules,
    setPaused(paused: PausedNames): void {
      for (const one of intakes) one.setPaused(paused)
    },
    /** Called after definitions were added or replaced. */
    followDefinitions(): void {
      for (const one of intakes) one.followDefinitions()
      scheduler.soon()
      feed.soon()
    },
    /** Called when a credential was stored or refreshed. */
    onCredentialUsable: (name: string): Promise<void> => feed.onUsable(realmOf(name)),
    [Symbol.asyncDispose]: (): Promise<void> => stack.disposeAsync(),
  }
}
