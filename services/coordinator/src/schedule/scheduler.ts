/**
 * Queues the runs of schedules at their times. Every coordinator does so for the schedules of its own definitions. The
 * store of schedules ensures that each scheduled time starts its runs only once.
 *
 * A schedule with a run per company fires in two parts. First its time is stored as an open tick. Then the runs are
 * queued, one page of companies at a time. The position in the list of companies is stored together with the runs of
 * each page. If the coordinator is lost, or token-service is unavailable, any coordinator can continue at the stored
 * position.
 */
import { hasCode, IntegrationError } from '@integration-host/shared/errors'
import type { Timer } from '@integration-host/shared/process/clock'
import type { ConnectedCompanies } from '../company/connected-companies.ts'
import { iso } from '../records/records.ts'
import { outlineOf, type ProcessDefinition } from '../step/definition.ts'
import {
  lagMs,
  type OwnSchedule,
  type ScheduleRow,
  type ScheduleStore,
  timingOf,
} from './schedule-store.ts'
import { firstTick, isOverlooked } from './ticks.ts'
import { type Periodic, startPolling } from '../worker/polling.ts'
import type { TransitionPublisher } from '../worker/transition-publisher.ts'
import { namesInstead } from '@integration-host/shared/similar-name'
import type { Act } from '../run/action.ts'
import { queuedRuns, type TransactionSource } from '../run/transaction-source.ts'
import { transactionOf } from './schedule.ts'

export interface Scheduler extends AsyncDisposable {
  /** Checks at once which schedules are due, for example after definitions have changed. */
  readonly soon: () => void
}

export interface SchedulerDeps extends Periodic {
  readonly store: ScheduleStore
  readonly companies: Pick<ConnectedCompanies, 'page'>
  readonly publisher: Pick<TransitionPublisher, 'publishSteps'>
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  /** Called with the number of runs that a schedule has started. */
  readonly onRuns: (process: string, schedule: string, count: number) => void
  /** Called with the lag of each schedule of this coordinator after each check. */
  readonly onLags: (lags: readonly ScheduleLag[]) => void
}

export interface ScheduleLag {
  readonly process: string
  readonly schedule: string
  readonly lagMs: number
}

/** The maximum number of schedules that fire before the messages of their runs are published. */
const BATCH = 20
const MAX_BATCHES = 20
/** The maximum number of pages of companies that one check reads for an open tick. */
const MAX_PAGES = 20
/** The longest delay that a Node timer accepts. */
const MAX_TIMER_MS = 2_147_483_647

export function startScheduler(deps: SchedulerDeps): Scheduler {
  const { store, companies, publisher, processes, log, clock } = deps
  /** The definitions whose schedules are stored. */
  const declared = new Map<string, ProcessDefinition>()
  let timer: Timer | null = null

  async function declare(): Promise<void> {
    for (const definition of processes.values()) {
      const { name } = definition
      if (declared.get(name) === definition) continue
      await store.declareSchedules(name, definition.schedules)
      declared.set(name, definition)
    }
  }

  /** Fires schedules until none is due. Resolves with the time until the next schedule is due. */
  async function fire(): Promise<number | null> {
    for (let batch = 1; ; batch += 1) {
      const { runs, fired, nextInMs } = await store.fireSchedules(processes, BATCH)
      publisher.publishSteps(runs)
      for (const { process, name, at } of fired)
        log.info({ process, schedule: name, time: iso(at) }, 'schedule fired')
      for (const { Process, TransactionID } of runs)
        deps.onRuns(Process, scheduleOf(TransactionID), 1)
      if (nextInMs === null || nextInMs > 0 || batch === MAX_BATCHES) return nextInMs
    }
  }

  /** Queues the runs of an open tick, one for each company. Resolves with false if more runs are to be queued. */
  async function continueTick(tick: OwnSchedule): Promise<boolean> {
    let { row } = tick
    for (let page = 0; page < MAX_PAGES; page += 1) {
      const { realms, next } = await companies.page(row.TickCursor)
      const runs = await store.queueTick({ ...tick, row }, realms, next)
      if (runs === null) return true // another coordinator continues this tick
      publisher.publishSteps(runs)
      deps.onRuns(row.Process, row.Name, runs.length)
      if (next === null) return true
      row = { ...row, TickCursor: next }
    }
    return false
  }

  async function continueTicks(): Promise<boolean> {
    let isDone = true
    for (const tick of await store.openTicks(processes)) {
      try {
        isDone = (await continueTick(tick)) && isDone
      } catch (error) {
        if (!hasCode(error, 'token_service_unavailable')) throw error
        log.warn(
          { err: error, process: tick.row.Process, schedule: tick.row.Name },
          'schedule waits for the list of companies',
        )
      }
    }
    return isDone
  }

  async function poll(): Promise<boolean> {
    await declare()
    if (![...processes.values()].some(({ schedules }) => schedules.length > 0)) return true
    const nextInMs = await fire()
    const isDone = await continueTicks()
    const { now, rows } = await store.schedules()
    const own = rows.filter(({ Process, Name }) =>
      processes.get(Process)?.schedules.some(({ name }) => name === Name),
    )
    deps.onLags(
      own.map((row) => ({ process: row.Process, schedule: row.Name, lagMs: lagMs(row, now) })),
    )
    // While replicas of an earlier release run, they may store next times by other rules. The next check declares such
    // a schedule again, which corrects its next time.
    for (const row of own)
      if (isOverlooked(firstTick(timingOf(row), now), row)) declared.delete(row.Process)
    timer?.[Symbol.dispose]()
    timer =
      nextInMs === null
        ? null
        : clock.setTimeout(() => polling.pollSoon(), Math.min(MAX_TIMER_MS, Math.max(1, nextInMs)))
    timer?.unref()
    return isDone
  }

  const polling = startPolling({ ...deps, task: 'schedules', poll })
  return {
    soon: () => polling.pollSoon(),
    async [Symbol.asyncDispose]() {
      await polling[Symbol.asyncDispose]()
      timer?.[Symbol.dispose]()
    },
  }
}

/** Returns the name of the schedule from the id of one of its runs. */
const scheduleOf = (transactionId: string): string =>
  transactionId.slice(0, transactionId.indexOf('@'))

/** What the operations on schedules need. */
export interface ScheduleOperationsDeps {
  readonly store: ScheduleStore
  readonly source: Pick<TransactionSource, 'queue'>
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly publisher: Pick<TransitionPublisher, 'publishSteps'>
  readonly scheduler: Pick<Scheduler, 'soon'>
  readonly now: () => number
}

export type ScheduleOperations = ReturnType<typeof createScheduleOperations>

/** The operations that the HTTP API offers on schedules. Each change is recorded in the action log. */
export function createScheduleOperations(deps: ScheduleOperationsDeps) {
  const { store, source, processes, publisher, scheduler } = deps
  const notFound = (process: string, name: string): IntegrationError => {
    const known = processes.get(process)?.schedules.map((one) => one.name) ?? []
    const others = namesInstead(name, known, 'schedules')
    return new IntegrationError(
      'schedule_not_found',
      `the process ${process} has no schedule ${name}${others}`,
    )
  }
  return {
    list: () => store.schedules(),
    /** Pauses or resumes a schedule. @throws {IntegrationError} `schedule_not_found` */
    async setPaused(
      process: string,
      name: string,
      isPaused: boolean,
      act: Act,
    ): Promise<ScheduleRow> {
      const changed = await store.setSchedulePaused(process, name, isPaused, act)
      if (changed === null) throw notFound(process, name)
      scheduler.soon()
      return changed
    },
    /**
     * Starts the run of a schedule now, or the runs of all companies, even if the schedule is paused. Resolves with the
     * time of the start, and the id of the transaction; `null` if the schedule starts one for each company. The action
     * log gets an entry `queue` for a single run, and one entry `run_schedule` for those of all companies.
     *
     * @throws {IntegrationError} `process_not_found` or `schedule_not_found` if this coordinator has not loaded the
     *   process or the schedule, and `schedule_in_progress` if the runs of an earlier start of this schedule are still
     *   being queued.
     */
    async run(
      process: string,
      name: string,
      act: Act,
    ): Promise<{ readonly transactionId: string | null; readonly at: string }> {
      const definition = processes.get(process)
      if (definition === undefined)
        throw new IntegrationError('process_not_found', `no process ${process} is loaded`)
      const schedule = definition.schedules.find((one) => one.name === name)
      if (schedule === undefined) throw notFound(process, name)
      if (schedule.each === 'company') {
        const at = (await store.openTick(process, name, act))?.TickAt
        if (at === undefined || at === null)
          throw new IntegrationError(
            'schedule_in_progress',
            'the runs of an earlier time of the schedule are still being queued',
          )
        scheduler.soon()
        return { transactionId: null, at }
      }
      const at = deps.now()
      const Reason = act.reason ?? undefined
      const transaction = transactionOf(definition, schedule, at, null, true)
      const given = Reason === undefined ? transaction : { ...transaction, Reason }
      publisher.publishSteps(queuedRuns(await source.queue(outlineOf(definition), [given], act.by)))
      return { transactionId: transaction.TransactionID, at: new Date(at).toISOString() }
    },
  }
}
