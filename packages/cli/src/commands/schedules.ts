/** The commands on schedules: list, pause, resume and run. */
import {
  ScheduleList,
  ScheduleView,
  StartedSchedule,
} from '@integration-host/shared/contracts/schedule'
import { expectNone } from '../command.ts'
import { UsageError } from '../exit-code.ts'
import { changeCommand, listCommand } from '../service-command.ts'

export const listSchedules = listCommand({
  summary: 'list the schedules of the processes with their next times',
  help: `Lists the schedules. NEXT is the next time in UTC. LATE means that the time of a schedule has passed and its runs are not
queued yet, REMOVED that its process has no such schedule any more. With --json each line is one schedule, with its next
three times.

Examples:
  integration-host schedules list
  integration-host schedules list --json | jq -r 'select(.Paused) | .Name'`,
  path: '/schedules',
  response: ScheduleList,
  columns: {
    PROCESS: 'Process',
    SCHEDULE: 'Name',
    STATE: (schedule) => stateOf(schedule),
    CRON: 'Cron',
    'TIME ZONE': 'TimeZone',
    EACH: 'Each',
    NEXT: ({ NextTimes: [next] }) => next,
    LAST: 'LastTime',
    REASON: 'Reason',
  },
})

function stateOf({ RemovedAt, Paused, OpenTime, LagSeconds }: ScheduleView): string {
  if (RemovedAt !== null) return 'REMOVED'
  if (Paused) return 'PAUSED'
  return OpenTime !== null || LagSeconds > 0 ? 'LATE' : 'ACTIVE'
}

const change = (action: 'pause' | 'resume' | 'run') => ({
  usage: 'PROCESS NAME',
  pathOf([process, name, ...rest]: readonly string[]): string {
    if (process === undefined || name === undefined)
      throw new UsageError('The names of a process and of its schedule are needed')
    expectNone(rest)
    return `/schedules/${encodeURIComponent(process)}/${encodeURIComponent(name)}/${action}`
  },
})

const named = ([process, name]: readonly string[]): string => `The schedule ${name} of ${process}`

export const pauseSchedule = changeCommand({
  ...change('pause'),
  summary: 'pause a schedule: its times begin no runs',
  help: [
    'Pauses a schedule on all replicas. Its times begin no runs, and are not made up for later.',
    `schedules pause Reports nightly --reason 'maintenance of the ERP'`,
  ],
  response: ScheduleView,
  done: (_, names) => `${named(names)} is paused.`,
})

export const resumeSchedule = changeCommand({
  ...change('resume'),
  summary: 'resume a paused schedule with its next time',
  help: [
    'Ends the pause of a schedule. It continues with its next time.',
    'schedules resume Reports nightly',
  ],
  response: ScheduleView,
  done: ({ NextTimes: [next] }, names) =>
    `${named(names)} is active${next === undefined ? '' : `; its next time is ${next}`}.`,
})

export const runSchedule = changeCommand({
  ...change('run'),
  summary: 'begin the run of a schedule now, or the runs of all companies',
  help: [
    `Begins the run of a schedule now, also while the schedule is paused. Its next time stays the same. If the schedule is for
each company, the runs of all companies are queued in the background.`,
    `schedules run Reports nightly --reason 'the night was missed'`,
  ],
  response: StartedSchedule,
  done: ({ TransactionID: id }, names) =>
    id === null
      ? `${named(names)} is queueing one run for each company.`
      : `${named(names)} has begun: integration-host transactions show ${id}`,
})
