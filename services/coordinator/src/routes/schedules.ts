import type { Caller } from '@integration-host/shared/access/caller'
import { ActBody } from '@integration-host/shared/contracts/run'
import {
  ScheduleList,
  ScheduleView,
  StartedSchedule,
} from '@integration-host/shared/contracts/schedule'
import { callerOf, needs } from '@integration-host/shared/http/access'
import { onlyKnownQuery } from '@integration-host/shared/http/known-query'
import { jsonResponse, problemResponses, validate } from '@integration-host/shared/http/service-app'
import { type Context, Hono } from 'hono'
import { createFactory } from 'hono/factory'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { StoredSchedule } from '../schedule/schedule-store.ts'
import { nextTicks } from '../schedule/ticks.ts'
import type { Act } from '../transaction/action.ts'
import type { ScheduleOperations } from '../worker/schedule-operations.ts'
import { describeBody, readActOn } from './act.ts'
import { ProcessParam } from './contracts.ts'
import { maySeeReasonOfPause } from './pause-reasons.ts'

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

interface Change {
  readonly operationId: string
  readonly summary: string
  readonly response: z.ZodType
  readonly apply: (process: string, name: string, act: Act, c: Context) => Promise<object>
}

/** `/schedules`: the times at which runs begin without a request. */
export function scheduleRoutes({ schedules }: ScheduleRouteDeps) {
  /** Returns the handlers of a route that changes a schedule. */
  const change = ({ response, apply, ...description }: Change) =>
    createFactory().createHandlers(
      needs('transactions:operate'),
      describeRoute({
        tags,
        ...description,
        requestBody: describeBody(ActBody),
        responses: {
          200: jsonResponse('done', response),
          ...problemResponses({
            400: 'invalid',
            404: 'no such process or schedule',
            409: 'the runs of an earlier time are still being queued',
            503: 'the store is unavailable',
          }),
        },
      }),
      validate('param', ScheduleParam),
      onlyKnownQuery(),
      async (c) => {
        const { process, name } = c.req.valid('param')
        callerOf(c).requireEveryRealm() // a schedule concerns all companies
        const { act } = await readActOn(c, 'a schedule', ActBody)
        return c.json(await apply(process, name, act, c))
      },
    )
  const setPaused =
    (isPaused: boolean): Change['apply'] =>
    async (process, name, act, c) =>
      viewOf(await schedules.setPaused(process, name, isPaused, act), callerOf(c))
  return new Hono()
    .get(
      '/',
      needs('transactions:read'),
      describeRoute({
        operationId: 'listSchedules',
        tags,
        summary: 'The schedules of the processes that the key may use, with their next times',
        responses: {
          200: jsonResponse('schedules', ScheduleList),
          ...problemResponses({
            400: 'an unknown query parameter',
            503: 'the store is unavailable',
          }),
        },
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
      ...change({
        operationId: 'pauseSchedule',
        summary: 'Pause a schedule: its times begin no runs until it is resumed',
        response: ScheduleView,
        apply: setPaused(true),
      }),
    )
    .post(
      '/:process/:name/resume',
      ...change({
        operationId: 'resumeSchedule',
        summary: 'Resume a schedule with its next time; times during the pause are not made up for',
        response: ScheduleView,
        apply: setPaused(false),
      }),
    )
    .post(
      '/:process/:name/run',
      ...change({
        operationId: 'runSchedule',
        summary:
          'Begin the run of a schedule now, or the runs of all companies, also while it is paused',
        response: StartedSchedule,
        async apply(process, name, act) {
          const { transactionId, at } = await schedules.run(process, name, act)
          return { TransactionID: transactionId, Time: new Date(at).toISOString() }
        },
      }),
    )
}
