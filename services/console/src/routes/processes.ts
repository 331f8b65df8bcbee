import { DeadLetterPage, DeletedDeadLetters } from '@integration-host/shared/contracts/dead-letter'
import { RunResponse } from '@integration-host/shared/contracts/run'
import {
  ScheduleList,
  StartedSchedule,
  ScheduleView,
} from '@integration-host/shared/contracts/schedule'
import { jsonResponse, problemResponses, validate } from '@integration-host/shared/http/service-app'
import { type Context, Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { ServiceClient } from '../adapters/peers/service-client.ts'
import {
  deadLetterActions,
  DeadLettersView,
  processActions,
  ProcessDetail,
  ProcessPageView,
  ProcessesView,
  ProcessView,
  ReasonBody,
  scheduleActions,
} from '../contracts/processes.ts'
import type { Sessions } from '../session/sessions.ts'
import type { Installation } from '../view/installation.ts'
import { queuesOf } from '../view/queues.ts'
import { needsRole, sessionOf } from './browser-guard.ts'
import { ACTION_PROBLEMS, PEER_PROBLEMS } from './peer-problems.ts'

export interface ProcessRouteDeps {
  readonly sessions: Sessions
  readonly isHttps: boolean
  readonly coordinator: ServiceClient
  readonly installation: () => Installation
}

const ROWS = 50

const ProcessList = z.object({
  items: z.array(ProcessView),
  not_loaded: z.array(z.object({ Process: z.string(), Unfinished: z.int() })),
})
const ProcessParam = z.object({ process: z.string() })
const ProcessActionParam = ProcessParam.extend({ action: z.enum(processActions) })
const ScheduleActionParam = ProcessParam.extend({
  name: z.string(),
  action: z.enum(scheduleActions),
})
const LetterParam = ProcessParam.extend({
  id: z.string().regex(/^[1-9]\d{0,14}$/, 'must be the ID of a dead letter'),
  action: z.enum(deadLetterActions),
})
const LettersQuery = z.object({ cursor: z.string().max(4_096).optional() })

/** The routes of processes: the list with queues and schedules, the dead letters, and the actions on all of these. */
export function processRoutes(deps: ProcessRouteDeps) {
  const { sessions, isHttps, coordinator, installation } = deps
  const tags = ['processes']
  const viewer = needsRole(sessions, 'viewer', isHttps)
  const operator = needsRole(sessions, 'operator', isHttps)
  const person = (c: Context): { readonly person: string } => ({ person: sessionOf(c).user })
  const responses = { 204: { description: 'done' }, ...problemResponses(ACTION_PROBLEMS) }

  return new Hono()
    .get(
      '/processes',
      viewer,
      describeRoute({
        operationId: 'listProcesses',
        tags,
        summary: 'The processes and their schedules',
        responses: {
          200: jsonResponse('the processes', ProcessesView),
          ...problemResponses(PEER_PROBLEMS),
        },
      }),
      async (c) => {
        const [processes, schedules] = await Promise.all([
          coordinator.send('/processes', person(c), ProcessList),
          coordinator.send('/schedules', person(c), ScheduleList),
        ])
        return c.json({
          Processes: processes.items,
          NotLoaded: processes.not_loaded,
          Schedules: schedules.items,
        } satisfies ProcessesView)
      },
    )
    .get(
      '/processes/:process',
      viewer,
      describeRoute({
        operationId: 'getProcess',
        tags,
        summary: 'A process with its limits, queues and schedules',
        responses: {
          200: jsonResponse('the process', ProcessPageView),
          ...problemResponses(PEER_PROBLEMS),
        },
      }),
      validate('param', ProcessParam),
      async (c) => {
        const { process: name } = c.req.valid('param')
        const [process, schedules] = await Promise.all([
          coordinator.send(`/processes/${encodeURIComponent(name)}`, person(c), ProcessDetail),
          coordinator.send('/schedules', person(c), ScheduleList),
        ])
        return c.json({
          Process: process,
          ...queuesOf(installation(), process),
          Schedules: schedules.items.filter(({ Process }) => Process === name),
        } satisfies ProcessPageView)
      },
    )
    .post(
      '/processes/:process/:action',
      operator,
      describeRoute({
        operationId: 'actOnProcess',
        tags,
        summary: 'Pauses or resumes a process',
        responses,
      }),
      validate('param', ProcessActionParam),
      validate('json', ReasonBody),
      async (c) => {
        const { process, action } = c.req.valid('param')
        const path = `/processes/${encodeURIComponent(process)}/${action}`
        await coordinator.send(
          path,
          { ...person(c), method: 'POST', body: c.req.valid('json') },
          ProcessView,
        )
        return c.body(null, 204)
      },
    )
    .post(
      '/schedules/:process/:name/:action',
      operator,
      describeRoute({
        operationId: 'actOnSchedule',
        tags,
        summary: 'Pauses or resumes a schedule, or runs it now',
        responses,
      }),
      validate('param', ScheduleActionParam),
      validate('json', ReasonBody),
      async (c) => {
        const { process, name, action } = c.req.valid('param')
        await coordinator.send(
          `/schedules/${encodeURIComponent(process)}/${encodeURIComponent(name)}/${action}`,
          { ...person(c), method: 'POST', body: c.req.valid('json') },
          z.union([ScheduleView, StartedSchedule]),
        )
        return c.body(null, 204)
      },
    )
    .get(
      '/dead-letters/:process',
      operator,
      describeRoute({
        operationId: 'listDeadLetters',
        tags,
        summary: 'The messages of a process that could not be processed, newest first',
        responses: {
          200: jsonResponse('a page', DeadLettersView),
          ...problemResponses(PEER_PROBLEMS),
        },
      }),
      validate('param', ProcessParam),
      validate('query', LettersQuery),
      async (c) => {
        const { cursor } = c.req.valid('query')
        const query = new URLSearchParams({
          limit: String(ROWS),
          ...(cursor !== undefined && { cursor }),
        })
        const path = `${lettersOf(c.req.valid('param').process)}?${query.toString()}`
        return c.json(await coordinator.send(path, person(c), DeadLetterPage))
      },
    )
    .post(
      '/dead-letters/:process/discard',
      operator,
      describeRoute({
        operationId: 'discardDeadLetters',
        tags,
        summary: 'Deletes all dead letters of a process',
        responses,
      }),
      validate('param', ProcessParam),
      validate('json', ReasonBody),
      async (c) => {
        const request = { ...person(c), method: 'DELETE', body: c.req.valid('json') } as const
        await coordinator.send(lettersOf(c.req.valid('param').process), request, DeletedDeadLetters)
        return c.body(null, 204)
      },
    )
    .post(
      '/dead-letters/:process/:id/:action',
      operator,
      describeRoute({
        operationId: 'actOnDeadLetter',
        tags,
        summary: 'Publishes the step of a dead letter again, or deletes the dead letter',
        responses,
      }),
      validate('param', LetterParam),
      validate('json', ReasonBody),
      async (c) => {
        const { process, id, action } = c.req.valid('param')
        const path = `${lettersOf(process)}/${id}`
        const request = { ...person(c), body: c.req.valid('json') }
        if (action === 'requeue')
          await coordinator.send(`${path}/requeue`, { ...request, method: 'POST' }, RunResponse)
        else await coordinator.send(path, { ...request, method: 'DELETE' }, z.null())
        return c.body(null, 204)
      },
    )
}

const lettersOf = (process: string): string =>
  `/processes/${encodeURIComponent(process)}/dead-letters`
