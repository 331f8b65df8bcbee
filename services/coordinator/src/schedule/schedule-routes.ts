import type { Caller } from '@integration-host/shared/access/caller'
import {
  ScheduleList,
  ScheduleView,
  StartedSchedule,
} from '@integration-host/shared/contracts/schedule'
import { callerOf, needs, onlyKnownQuery } from '@integration-host/shared/http/request'
import { responses } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import { lagMs, type ScheduleRow, timingOf } from './schedule-store.ts'
import { nextTicks } from './ticks.ts'
import { iso } from '../records/records.ts'
import { action, type ActionRequest, type ActionRoute } from '../routes/act.ts'
import { ProcessParam } from '../routes/contracts.ts'
import { maySeeReasonOfPause } from '../routes/pause-reasons.ts'
import type { AppDeps } from '../core.ts'

const ScheduleParam = ProcessParam.extend({ name: z.string().min(1).max(64) })
const tags = ['schedules']
/** The number of future times that are shown for each schedule. */
const NEXT_TIMES = 3

function viewOf(row: ScheduleRow, now: number, caller: Caller): z.output<typeof ScheduleView> {
  const { TickAt, TickCursor: _, LastAt, NextAt, UpdatedAt: _updated, ...shown } = row
  const first = Date.parse(NextAt)
  const isFiring = row.PausedAt === null && row.RemovedAt === null
  const maySeeWhy = maySeeReasonOfPause(caller)
  return {
    ...shown,
    NextTimes: isFiring ? [first, ...nextTicks(timingOf(row), first, NEXT_TIMES - 1)].map(iso) : [],
    LastTime: LastAt,
    OpenTime: TickAt,
    LagSeconds: lagMs(row, now) / 1_000,
    Paused: row.PausedAt !== null,
    PausedBy: maySeeWhy ? row.PausedBy : null,
    Reason: maySeeWhy ? row.Reason : null,
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
export function scheduleRoutes({ schedules }: AppDeps) {
  const setPaused = (isPaused: boolean) => ({
    ...ofSchedule,
    success: ScheduleView,
    async apply({ c, caller, param, act }: ActionRequest<typeof ScheduleParam>) {
      const row = await schedules.setPaused(param.process, param.name, isPaused, act)
      return c.json(viewOf(row, Date.parse(row.UpdatedAt), caller))
    },
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
        const { now, rows } = await schedules.list()
        const visible = rows.filter(({ Process }) => caller.mayUseProcess(Process))
        return c.json({ items: visible.map((row) => viewOf(row, now, caller)) })
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
          return c.json({ TransactionID: transactionId, Time: at })
        },
      }),
    )
}
