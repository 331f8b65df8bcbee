/** The commands on schedules: list, pause, resume and run. */
import {
  ScheduleList,
  ScheduleView,
  StartedSchedule,
} from '@integration-host/shared/contracts/schedule'
import type { z } from 'zod'
import { type Command, expectNone, parse } from '../command.ts'
import { exitCodes, UsageError } from '../exit-code.ts'
import { openCoordinator } from '../service-api.ts'
import { createTable, plain, print, widthOf } from '../terminal.ts'
import { REASON_HELP, reasonOf, reasonOption } from './transactions/arguments.ts'

export const listSchedules: Command = {
  summary: 'list the schedules of the processes with their next times',
  usage: '',
  help: `Lists the schedules. NEXT is the next time in UTC. LATE means that the time of a schedule has passed and its runs are not
queued yet, REMOVED that its process has no such schedule any more. With --json each line is one schedule, with its next
three times.

Examples:
  integration-host schedules list
  integration-host schedules list --json | jq -r 'select(.Paused) | .Name'`,
  async run(args, terminal) {
    const { values, positionals } = parse(args, {})
    expectNone(positionals)
    const { items } = await openCoordinator(values.url, terminal).get('/schedules', ScheduleList)
    const table = createTable(COLUMNS, widthOf(terminal))
    await print(
      terminal,
      ...(values.json ? items.map((item) => JSON.stringify(item)) : table(items.map(rowOf))),
    )
    return exitCodes.ok
  },
}

const COLUMNS = [
  'PROCESS',
  'SCHEDULE',
  'STATE',
  'CRON',
  'TIME ZONE',
  'EACH',
  'NEXT',
  'LAST',
  'REASON',
]

function stateOf({ RemovedAt, Paused, OpenTime, LagSeconds }: ScheduleView): string {
  if (RemovedAt !== null) return 'REMOVED'
  if (Paused) return 'PAUSED'
  return OpenTime !== null || LagSeconds > 0 ? 'LATE' : 'ACTIVE'
}

const rowOf = (schedule: ScheduleView): string[] => [
  schedule.Process,
  schedule.Name,
  stateOf(schedule),
  schedule.Cron,
  schedule.TimeZone,
  schedule.Each,
  schedule.NextTimes[0] ?? '',
  schedule.LastTime ?? '',
  schedule.Reason ?? '',
]

interface Change<Response> extends Pick<Command, 'summary' | 'help'> {
  readonly path: 'pause' | 'resume' | 'run'
  readonly response: z.ZodType<Response>
  /** Returns the line that the command prints after the change. */
  readonly done: (what: string, response: Response) => string
}

/** Creates a command that changes or runs one schedule. */
const change = <Response>({ summary, help, path, response, done }: Change<Response>): Command => ({
  summary,
  usage: 'PROCESS NAME [--reason TEXT]',
  help,
  async run(args, terminal) {
    const { values, positionals } = parse(args, reasonOption)
    const [process, name, ...rest] = positionals
    if (process === undefined || name === undefined)
      throw new UsageError('The names of a process and of its schedule are needed')
    expectNone(rest)
    const body = { Reason: reasonOf(values.reason) }
    const at = `/schedules/${encodeURIComponent(process)}/${encodeURIComponent(name)}/${path}`
    const changed = await openCoordinator(values.url, terminal).post(at, body, response)
    await print(
      terminal,
      values.json
        ? JSON.stringify(changed)
        : done(`The schedule ${plain(name)} of ${plain(process)}`, changed),
    )
    return exitCodes.ok
  },
})

export const pauseSchedule = change({
  summary: 'pause a schedule: its times begin no runs',
  help: `Pauses a schedule on all replicas. Its times begin no runs, and are not made up for later.

${REASON_HELP}

Examples:
  integration-host schedules pause Reports nightly --reason 'maintenance of the ERP'`,
  path: 'pause',
  response: ScheduleView,
  done: (what) => `${what} is paused.`,
})

export const resumeSchedule = change({
  summary: 'resume a paused schedule with its next time',
  help: `Ends the pause of a schedule. It continues with its next time.

${REASON_HELP}

Examples:
  integration-host schedules resume Reports nightly`,
  path: 'resume',
  response: ScheduleView,
  done: (what, { NextTimes: [next] }) =>
    `${what} is active${next === undefined ? '' : `; its next time is ${next}`}.`,
})

export const runSchedule = change({
  summary: 'begin the run of a schedule now, or the runs of all companies',
  help: `Begins the run of a schedule now, also while the schedule is paused. Its next time stays the same. If the schedule is for
each company, the runs of all companies are queued in the background.

${REASON_HELP}

Examples:
  integration-host schedules run Reports nightly --reason 'the night was missed'`,
  path: 'run',
  response: StartedSchedule,
  done: (what, { TransactionID: id }) =>
    id === null
      ? `${what} is queueing one run for each company.`
      : `${what} has begun: integration-host transactions show ${id}`,
})
