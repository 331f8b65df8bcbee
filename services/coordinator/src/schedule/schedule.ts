/** The schedules of a process definition: the times at which runs begin without a request. */
import { priorities } from '@integration-host/shared/contracts/transaction'
import type { z } from 'zod'
import type { Run } from '../run/run.ts'
import { acceptedKey, type Concurrency } from '../run/concurrency.ts'
import { isPreservedAsJson, type Json, normalizedJson } from '../run/json-normalization.ts'
import type { NewTransaction } from '../run/transaction-source.ts'
import { type ProcessDefinition, requireMembers } from '../step/definition.ts'
import { cronTimes } from './cron.ts'
import { delaySeconds } from './ticks.ts'

/** One schedule in a process definition. */
export interface ScheduleOptions<Input = unknown> {
  /**
   * The name, which is part of the id of each run: a lower-case letter, then at most 35 letters, digits, `-` and `_`.
   */
  readonly name: string
  /**
   * The times in five fields: minute, hour, day of the month, month, day of the week, for example `0 2 * * *`. If both
   * a day of the month and a day of the week are given, either is sufficient.
   */
  readonly cron: string
  /** The IANA time zone of `cron`, such as `America/New_York`; `UTC` by default. */
  readonly timeZone?: string
  /**
   * `once`: one run at each time. `company`: one run for each connected company, with the company as the realm of the
   * run. `once` by default.
   */
  readonly each?: 'once' | 'company'
  /** The initial data of each run; `null` by default. It must match the `input` of the process. */
  readonly input?: Input
  /**
   * Determines which runs are started for the times that passed while no coordinator was running. `last`: a run for the
   * latest of these times. `all`: a run for each of them, at most for the latest 500. `none`: no run. `last` by
   * default.
   */
  readonly catchUp?: 'last' | 'all' | 'none'
  /**
   * The number of seconds over which the runs of one time are spread, at most a day; 0 by default. A company has the
   * same delay each time.
   */
  readonly jitterSeconds?: number
  /** The priority of each run; `normal` by default. */
  readonly priority?: 'high' | 'normal'
}

/** The members that determine when a schedule fires. They are stored, so that all coordinators agree on them. */
export interface ScheduleTiming {
  readonly cron: string
  readonly timeZone: string
  readonly each: 'once' | 'company'
  readonly catchUp: 'last' | 'all' | 'none'
  readonly jitterSeconds: number
}

/** A schedule that was checked. */
export interface Schedule extends ScheduleTiming {
  readonly name: string
  readonly input: Json
  /** Absent if it is `normal`. */
  readonly priority?: Run['Priority']
}

const MEMBERS = new Set<string>([
  'name',
  'cron',
  'timeZone',
  'each',
  'input',
  'catchUp',
  'jitterSeconds',
  'priority',
] satisfies (keyof ScheduleOptions)[])
/** An id of a run has at most 128 characters: the name, a time of 24 characters and a realm of 64. */
const NAME = /^[a-z][A-Za-z0-9_-]{0,35}$/
const MAX_JITTER_SECONDS = 86_400
/** The maximum number of schedules. It bounds the statements that read all schedules of a process. */
const MAX_SCHEDULES = 100

/** The checks that a process makes on initial data. The input of its schedules must pass them. */
export interface ScheduledInput {
  readonly input: z.ZodType | null
  readonly concurrency: Concurrency | null
}

/** Returns the checked schedules of a process. @throws {TypeError} names the schedule and the member. */
export function schedulesOf(
  process: string,
  given: unknown,
  accepts: ScheduledInput,
): readonly Schedule[] {
  if (given === undefined) return []
  if (!Array.isArray(given)) throw new TypeError(`schedules of ${process} must be an array`)
  if (given.length > MAX_SCHEDULES)
    throw new TypeError(`process ${process} has ${given.length} schedules; 100 are possible`)
  const names = new Set<string>()
  return (given as readonly unknown[]).map((one, index) => {
    const schedule = scheduleOf(process, index, one, accepts)
    if (names.has(schedule.name))
      throw new TypeError(`process ${process} has two schedules ${schedule.name}`)
    names.add(schedule.name)
    return schedule
  })
}

function scheduleOf(
  process: string,
  index: number,
  given: unknown,
  accepts: ScheduledInput,
): Schedule {
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    throw new TypeError(`schedules[${index}] of ${process} must be an object`)
  const options = given as Record<keyof ScheduleOptions, unknown>
  const { name } = options
  if (typeof name !== 'string' || !NAME.test(name))
    throw new TypeError(
      `schedules[${index}].name of ${process} must be a lower-case letter, then at most 35 letters, digits, - and _`,
    )
  const what = `schedule ${name} of ${process}`
  requireMembers(options, MEMBERS, what)
  const { cron, timeZone = 'UTC', each = 'once', catchUp = 'last', jitterSeconds = 0 } = options
  const { priority = 'normal' } = options
  if (typeof cron !== 'string') throw new TypeError(`cron of ${what} must be a text`)
  if (typeof timeZone !== 'string') throw new TypeError(`timeZone of ${what} must be a text`)
  if (each !== 'once' && each !== 'company')
    throw new TypeError(`each of ${what} must be once or company`)
  if (catchUp !== 'last' && catchUp !== 'all' && catchUp !== 'none')
    throw new TypeError(`catchUp of ${what} must be last, all or none`)
  if (
    !(
      Number.isSafeInteger(jitterSeconds) &&
      (jitterSeconds as number) >= 0 &&
      (jitterSeconds as number) <= MAX_JITTER_SECONDS
    )
  )
    throw new TypeError(`jitterSeconds of ${what} must be a whole number from 0 to 86400`)
  if (!(priorities as readonly unknown[]).includes(priority))
    throw new TypeError(`priority of ${what} must be high or normal`)
  try {
    cronTimes(cron, timeZone)
  } catch (error) {
    const why = error instanceof Error ? error.message : ''
    throw new TypeError(`cron of ${what} (${cron}, ${timeZone}): ${why}`, { cause: error })
  }
  const input = options.input ?? null
  if (!isPreservedAsJson(input)) throw new TypeError(`input of ${what} cannot be stored as JSON`)
  const data = normalizedJson(input)
  const accepted = acceptedKey(accepts, data, null)
  if ('problems' in accepted)
    throw new TypeError(`input of ${what} is not valid: ${accepted.problems.join('; ')}`)
  return {
    name,
    cron: cron.trim(),
    timeZone,
    each,
    catchUp,
    jitterSeconds: jitterSeconds as number,
    input: data,
    ...(priority === 'high' && { priority }),
  }
}

/**
 * Returns the id of the run of a schedule at a time. A scheduled time is a whole second, and is written without
 * milliseconds. The id of a run that an operator has started contains milliseconds, so it never equals the id of a run
 * at a scheduled time.
 */
export function scheduledId(
  name: string,
  at: number,
  realm: string | null,
  isManual = false,
): string {
  const time = new Date(at).toISOString()
  return `${name}@${isManual ? time : time.replace('.000Z', 'Z')}${realm === null ? '' : `/${realm}`}`
}

/** Returns the transaction that a schedule queues at a scheduled time, in epoch ms. */
export function transactionOf(
  definition: ProcessDefinition,
  schedule: Schedule,
  at: number,
  realm: string | null,
  isManual = false,
): NewTransaction {
  const { name, input, priority } = schedule
  // No jitter is added to a run that an operator starts.
  const seconds = isManual ? 0 : delaySeconds(schedule, realm ?? `${definition.name}/${name}`)
  // The input needs no check here, because it was checked when the definition was loaded.
  const accepted = acceptedKey(definition, input, realm)
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
