import { namesInstead } from '@integration-host/shared/similar-name'
import { IntegrationError } from '@integration-host/shared/errors'
import { outlineOf, type ProcessDefinition } from '../step/definition.ts'
import type { Schedule } from './schedule.ts'
import type { ScheduleStore, StoredSchedule } from './schedule-store.ts'
import type { Act } from '../run/action.ts'
import type { TransactionSource } from '../run/transaction-source.ts'
import { type Scheduler, transactionOf } from './scheduler.ts'
import type { TransitionPublisher } from '../worker/transition-publisher.ts'

/** The operations that the HTTP API offers on schedules. Each change is recorded in the action log. */
export interface ScheduleOperations {
  list(): Promise<readonly StoredSchedule[]>
  /**
   * Pauses or resumes a schedule.
   * @throws {IntegrationError} `schedule_not_found`
   */
  setPaused(process: string, name: string, isPaused: boolean, act: Act): Promise<StoredSchedule>
  /**
   * Starts the run of a schedule now, or the runs of all companies, even if the schedule is paused.
   *
   * @throws {IntegrationError} `process_not_found` or `schedule_not_found` if this coordinator has not loaded the
   *   process or the schedule, and `schedule_in_progress` if the runs of an earlier start of this schedule are still
   *   being queued.
   */
  run(process: string, name: string, act: Act): Promise<StartedRuns>
}

export interface StartedRuns {
  /** The id of the transaction; `null` if the schedule starts one transaction for each company. */
  readonly transactionId: string | null
  /** The time at which an operator started the schedule, in epoch ms. */
  readonly at: number
}

export interface ScheduleOperationsDeps {
  readonly store: ScheduleStore
  readonly source: Pick<TransactionSource, 'queue'>
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly publisher: Pick<TransitionPublisher, 'publishSteps'>
  readonly scheduler: Pick<Scheduler, 'soon'>
  readonly now: () => number
}

export function createScheduleOperations(deps: ScheduleOperationsDeps): ScheduleOperations {
  const { store, source, processes, publisher, scheduler } = deps
  const notFound = (process: string, name: string): IntegrationError => {
    const known = processes.get(process)?.schedules.map((one) => one.name) ?? []
    const others = namesInstead(name, known, 'schedules')
    return new IntegrationError(
      'schedule_not_found',
      `the process ${process} has no schedule ${name}${others}`,
    )
  }
  const find = (process: string, name: string): readonly [ProcessDefinition, Schedule] => {
    const definition = processes.get(process)
    if (definition === undefined)
      throw new IntegrationError('process_not_found', `no process ${process} is loaded`)
    const schedule = definition.schedules.find((one) => one.name === name)
    if (schedule === undefined) throw notFound(process, name)
    return [definition, schedule]
  }
  return {
    list: () => store.schedules(),
    async setPaused(process, name, isPaused, act) {
      const changed = await store.setSchedulePaused(process, name, isPaused, act)
      if (changed === null) throw notFound(process, name)
      scheduler.soon()
      return changed
    },
    async run(process, name, act) {
      const [definition, schedule] = find(process, name)
      if (schedule.each === 'company') {
        const tick = await store.openTick(process, name, act)
        if (tick === null)
          throw new IntegrationError(
            'schedule_in_progress',
            'the runs of an earlier time of the schedule are still being queued',
          )
        scheduler.soon()
        return { transactionId: null, at: tick.at }
      }
      const at = deps.now()
      const transaction = transactionOf(definition, schedule, at, null, true)
      const Reason = act.reason ?? undefined
      const given = Reason === undefined ? transaction : { ...transaction, Reason }
      const results = await source.queue(outlineOf(definition), [given], act.by)
      publisher.publishSteps(
        results.flatMap((result) => (result.outcome === 'queued' ? [result.run] : [])),
      )
      return { transactionId: transaction.TransactionID, at }
    },
  }
}
