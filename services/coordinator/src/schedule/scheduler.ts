/**
 * Queues the runs of schedules at their times. Every coordinator does so for the schedules of its own definitions. The
 * store of schedules ensures that each scheduled time starts its runs only once.
 *
 * A schedule with a run per company fires in two parts. First its time is stored as an open tick. Then the runs are
 * queued, one page of companies at a time. The position in the list of companies is stored together with the runs of
 * each page. If the coordinator is lost, or token-service is unavailable, any coordinator can continue at the stored
 * position.
 */
import { hasCode } from '@integration-host/shared/errors'
import type { Timer } from '@integration-host/shared/process/clock'
import type { ConnectedCompanies } from '../company/connected-companies.ts'
import { acceptedKey } from '../run/concurrency.ts'
import { outlineOf, type ProcessDefinition } from '../step/definition.ts'
import { type Schedule, scheduledId } from './schedule.ts'
import type { OpenTick, ScheduledProcess, ScheduleStore, StoredSchedule } from './schedule-store.ts'
import { delaySeconds, firstTick, isOverlooked } from './ticks.ts'
import type { NewTransaction } from '../run/transaction-source.ts'
import { type Periodic, startPolling } from '../worker/polling.ts'
import type { TransitionPublisher } from '../worker/transition-publisher.ts'

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
  /** Called with the schedules of this coordinator after each check. */
  readonly onSchedules: (schedules: readonly StoredSchedule[]) => void
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
  const { now } = clock

  async function declare(): Promise<void> {
    for (const definition of processes.values()) {
      const { name } = definition
      if (declared.get(name) === definition) continue
      await store.declareSchedules(name, definition.schedules)
      declared.set(name, definition)
    }
  }

  /** Fires schedules until none is due. Resolves with the time until the next schedule is due. */
  async function fire(scheduled: readonly ScheduledProcess[]): Promise<number | null> {
    for (let batch = 1; ; batch += 1) {
      const { runs, fired, nextInMs } = await store.fireSchedules(scheduled, BATCH)
      publisher.publishSteps(runs)
      for (const { process, name, at } of fired)
        log.info({ process, schedule: name, time: new Date(at).toISOString() }, 'schedule fired')
      for (const { Process, TransactionID } of runs)
        deps.onRuns(Process, scheduleOf(TransactionID), 1)
      if (nextInMs === null || nextInMs > 0 || batch === MAX_BATCHES) return nextInMs
    }
  }

  /** Queues the runs of an open tick, one for each company. Resolves with false if more runs are to be queued. */
  async function continueTick(
    scheduled: readonly ScheduledProcess[],
    tick: OpenTick,
  ): Promise<boolean> {
    const schedule = processes.get(tick.process)?.schedules.find(({ name }) => name === tick.name)
    const outline = scheduled.find(({ outline: { name } }) => name === tick.process)?.outline
    if (schedule === undefined || outline === undefined) return true
    let { cursor } = tick
    for (let page = 0; page < MAX_PAGES; page += 1) {
      const { realms, next } = await companies.page(cursor)
      const definition = processes.get(tick.process)
      const transactions = realms.map((realm) =>
        transactionOf(definition, { ...schedule, ...tick.timing }, tick.at, realm),
      )
      const runs = await store.queueTick(outline, { ...tick, cursor }, transactions, next)
      if (runs === null) return true // another coordinator continues this tick
      publisher.publishSteps(runs)
      deps.onRuns(tick.process, tick.name, runs.length)
      if (next === null) return true
      cursor = next
    }
    return false
  }

  async function continueTicks(scheduled: readonly ScheduledProcess[]): Promise<boolean> {
    let isDone = true
    for (const tick of await store.openTicks(scheduled)) {
      try {
        isDone = (await continueTick(scheduled, tick)) && isDone
      } catch (error) {
        if (!hasCode(error, 'token_service_unavailable')) throw error
        log.warn(
          { err: error, process: tick.process, schedule: tick.name },
          'schedule waits for the list of companies',
        )
      }
    }
    return isDone
  }

  async function poll(): Promise<boolean> {
    await declare()
    const scheduled = scheduledProcesses(processes)
    if (scheduled.length === 0) return true
    const nextInMs = await fire(scheduled)
    const isDone = await continueTicks(scheduled)
    const isOwn = ({ process, name }: StoredSchedule): boolean =>
      scheduled.some(({ outline, schedules }) => outline.name === process && schedules.has(name))
    const stored = (await store.schedules()).filter(isOwn)
    deps.onSchedules(stored)
    // While replicas of an earlier release run, they may store next times by other rules. The next check declares such
    // a schedule again, which corrects its next time.
    for (const one of stored)
      if (isOverlooked(firstTick(one.timing, now()), one)) declared.delete(one.process)
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

/** Returns the transaction that a schedule queues at a scheduled time. */
export function transactionOf(
  definition: ProcessDefinition | undefined,
  schedule: Schedule,
  at: number,
  realm: string | null,
  isManual = false,
): NewTransaction {
  const { name, input, priority } = schedule
  // No jitter is added to a run that an operator starts.
  const seconds = isManual ? 0 : delaySeconds(schedule, realm ?? `${definition?.name}/${name}`)
  // The input needs no check here, because it was checked when the definition was loaded.
  const accepted = definition === undefined ? { key: null } : acceptedKey(definition, input, realm)
  const key = 'key' in accepted ? accepted.key : null
  return {
    TransactionID: scheduledId(name, at, realm, isManual),
    InitialData: input as NewTransaction['InitialData'],
    ...(realm !== null && { Realm: realm }),
    ...(priority !== undefined && { Priority: priority }),
    ...(key !== null && { ConcurrencyKey: key }),
    // The delay counts from now instead of the scheduled time, so that the runs of a missed time are spread as well.
    ...(seconds > 0 && { NotBefore: seconds }),
  }
}

const scheduledProcesses = (
  processes: ReadonlyMap<string, ProcessDefinition>,
): readonly ScheduledProcess[] =>
  [...processes.values()]
    .filter(({ schedules }) => schedules.length > 0)
    .map((definition) => ({
      outline: outlineOf(definition),
      schedules: new Map(
        definition.schedules.map((schedule) => [
          schedule.name,
          (timing, at) => transactionOf(definition, { ...schedule, ...timing }, at, null),
        ]),
      ),
    }))
