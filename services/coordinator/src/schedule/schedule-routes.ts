import type { Caller } from '@integration-host/shared/access/caller'
import {
  ScheduleList,
  ScheduleView,
  StartedSchedule,
} from '@integration-host/shared/contracts/schedule'
import { callerOf, needs } from '@integration-host/shared/http/access'
import { onlyKnownQuery } from '@integration-host/shared/http/request'
import { responses } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { StoredSchedule } from './schedule-store.ts'
import { nextTicks } from './ticks.ts'
import type { ScheduleOperations } from './schedule-operations.ts'
import { action, type ActionRequest, type ActionRoute } from '../routes/act.ts'
import { ProcessParam } from '../routes/contracts.ts'
import { maySeeReasonOfPause } from '../routes/pause-reasons.ts'

export interface ScheduleRouteDeps {
  readonly schedules: ScheduleOperations
}

const ScheduleParam = ProcessParam.extend({ name: z.string().min(1).max(64) })
const tags = ['schedules']
/** The number of future times that are shown for each schedule. */
const NEXT_TIMES = 3

function viewOf(schedule: StoredSchedule, caller: Caller): z.output<typeof ScheduleView> {
  const { process, name, timing, nextAt, pausedAt, removedAt } = schedule
  const first = Date.parse(nextAt)
  const isFiring = pausedAt === null && removedAt === null
  const maySeeWhy = maySeeReasonOfPause(caller)
  return {
    Process: process,
    Name: name,
    Cron: timing.cron,
    TimeZone: timing.timeZone,
    Each: timing.each,
    CatchUp: timing.catchUp,
    JitterSeconds: timing.jitterSeconds,
    NextTimes: isFiring
      ? [first, ...nextTicks(timing, first, NEXT_TIMES - 1)].map((at) => new Date(at).toISOString())
      : [],
    LastTime: schedule.lastAt,
    OpenTime: schedule.tickAt,
    LagSeconds: schedule.lagMs / 1_000,
    Paused: pausedAt !== null,
    PausedAt: pausedAt,
    PausedBy: maySeeWhy ? schedule.pausedBy : null,
    Reason: maySeeWhy ? schedule.reason : null,
    RemovedAt: removedAt,
  }
}

const ofSchedule = {
  tags,
  param: ScheduleParam,
  unversioned: 'a schedule',
  concernsEveryRealm: true,
  problems: ['process_not_found', 'schedule_not_found', 'schedule_in_progress'],
} satisfies Partial<ActionRoute>

/** `/schedules`: the times at which runs begin without a request. */
export function scheduleRoutes({ schedules }: ScheduleRouteDeps) {
  const setPaused = (isPaused: boolean) => ({
    ...ofSchedule,
    success: ScheduleView,
    apply: async ({ c, caller, param, act }: ActionRequest<typeof ScheduleParam>) =>
      c.json(viewOf(await schedules.setPaused(param.process, param.name, isPaused, act), caller)),
  })
  return new Hono()
    .get(
      '/',
      needs('transactions:read'),
      describeRoute({
        operationId: 'listSchedules',
        tags,
        summary: 'The schedules of the processes that the key may use, with their next times',
        responses: responses(ScheduleList),
      }),
      onlyKnownQuery(),
      async (c) => {
        const caller = callerOf(c)
        const all = await schedules.list()
        const visible = all.filter(({ process }) => caller.mayUseProcess(process))
        return c.json({ items: visible.map((schedule) => viewOf(schedule, caller)) })
      },
    )
    .post(
      '/:process/:name/pause',
      ...action({
        operationId: 'pauseSchedule',
        summary: 'Pause a schedule: its times begin no runs until it is resumed',
        ...setPaused(true),
      }),
    )
    .post(
      '/:process/:name/resume',
      ...action({
        operationId: 'resumeSchedule',
        summary: 'Resume a schedule with its next time; times during the pause are not made up for',
        ...setPaused(false),
      }),
    )
    .post(
      '/:process/:name/run',
      ...action({
        ...ofSchedule,
        operationId: 'runSchedule',
        summary:
          'Begin the run of a schedule now, or the runs of all companies, also while it is paused',
        success: StartedSchedule,
        async apply({ c, param, act }) {
          const { transactionId, at } = await schedules.run(param.process, param.name, act)
          return c.json({ TransactionID: transactionId, Time: new Date(at).toISOString() })
        },
      }),
    )
}
