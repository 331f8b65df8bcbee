import { withQuery } from '../isomorphic/pages.ts'
import { DeadLetterPage, DeletedDeadLetters } from '@integration-host/shared/contracts/operations'
import { RunResponse } from '@integration-host/shared/contracts/run'
import {
  ScheduleList,
  ScheduleView,
  StartedSchedule,
} from '@integration-host/shared/contracts/schedule'
import type { Hono } from 'hono'
import { z } from 'zod'
import {
  deadLetterActions,
  DeadLettersView,
  processActions,
  ProcessDetail,
  ProcessesView,
  ProcessPageView,
  ProcessView,
  ReasonBody,
  scheduleActions,
} from '../contracts/processes.ts'
import { queuesOf } from '../view/run-counts.ts'
import { guardedRoutes, type RouteDeps } from './guarded-route.ts'

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
export function processRoutes(deps: RouteDeps): Hono {
  const { act, read, readAsOperator, routes } = guardedRoutes(deps, 'processes')
  const { coordinator, installation } = deps

  read('/processes', {
    operationId: 'listProcesses',
    summary: 'The processes and their schedules',
    view: ['the processes', ProcessesView],
    async respond({ by }) {
      const [processes, schedules] = await Promise.all([
        coordinator.send('/processes', by, ProcessList),
        coordinator.send('/schedules', by, ScheduleList),
      ])
      return {
        Processes: processes.items,
        NotLoaded: processes.not_loaded,
        Schedules: schedules.items,
      } satisfies ProcessesView
    },
  })
  read('/processes/:process', {
    operationId: 'getProcess',
    summary: 'A process with its limits, queues and schedules',
    param: ProcessParam,
    view: ['the process', ProcessPageView],
    async respond({ by, param: { process: name } }) {
      const [process, schedules] = await Promise.all([
        coordinator.send(`/processes/${encodeURIComponent(name)}`, by, ProcessDetail),
        coordinator.send('/schedules', by, ScheduleList),
      ])
      return {
        Process: process,
        ...queuesOf(installation(), process),
        Schedules: schedules.items.filter(({ Process }) => Process === name),
      } satisfies ProcessPageView
    },
  })
  act('/processes/:process/:action', {
    operationId: 'actOnProcess',
    summary: 'Pauses or resumes a process',
    param: ProcessActionParam,
    body: ReasonBody,
    async respond({ by, param: { process, action }, body }) {
      const path = `/processes/${encodeURIComponent(process)}/${action}`
      await coordinator.send(path, { ...by, method: 'POST', body }, ProcessView)
    },
  })
  act('/schedules/:process/:name/:action', {
    operationId: 'actOnSchedule',
    summary: 'Pauses or resumes a schedule, or runs it now',
    param: ScheduleActionParam,
    body: ReasonBody,
    async respond({ by, param: { process, name, action }, body }) {
      await coordinator.send(
        `/schedules/${encodeURIComponent(process)}/${encodeURIComponent(name)}/${action}`,
        { ...by, method: 'POST', body },
        z.union([ScheduleView, StartedSchedule]),
      )
    },
  })
  readAsOperator('/dead-letters/:process', {
    operationId: 'listDeadLetters',
    summary: 'The messages of a process that could not be processed, newest first',
    param: ProcessParam,
    query: LettersQuery,
    view: ['a page', DeadLettersView],
    async respond({ by, param, query: { cursor } }) {
      const path = withQuery(lettersOf(param.process), { limit: ROWS, cursor })
      return await coordinator.send(path, by, DeadLetterPage)
    },
  })
  act('/dead-letters/:process/discard', {
    operationId: 'discardDeadLetters',
    summary: 'Deletes all dead letters of a process',
    param: ProcessParam,
    body: ReasonBody,
    async respond({ by, param, body }) {
      const request = { ...by, method: 'DELETE', body } as const
      await coordinator.send(lettersOf(param.process), request, DeletedDeadLetters)
    },
  })
  act('/dead-letters/:process/:id/:action', {
    operationId: 'actOnDeadLetter',
    summary: 'Publishes the step of a dead letter again, or deletes the dead letter',
    param: LetterParam,
    body: ReasonBody,
    async respond({ by, param: { process, id, action }, body }) {
      const path = `${lettersOf(process)}/${id}`
      const request = { ...by, body }
      if (action === 'requeue')
        await coordinator.send(`${path}/requeue`, { ...request, method: 'POST' }, RunResponse)
      else await coordinator.send(path, { ...request, method: 'DELETE' }, z.null())
    },
  })
  return routes
}

const lettersOf = (process: string): string =>
  `/processes/${encodeURIComponent(process)}/dead-letters`
