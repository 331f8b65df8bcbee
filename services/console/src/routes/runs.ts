import { withQuery } from '../isomorphic/pages.ts'
import { ActionPage } from '@integration-host/shared/contracts/operations'
import { realmOf } from '@integration-host/shared/contracts/realm'
import { DecisionAsk, DecisionChoices, factText } from '@integration-host/shared/contracts/decision'
import {
  realmWaitedFor,
  RunDetailResponse,
  RunResponse,
  SignalResponse,
} from '@integration-host/shared/contracts/run'
import { RunFilter } from '@integration-host/shared/contracts/run-filter'
import { StepReport } from '@integration-host/shared/contracts/transaction'
import { hasCode, IntegrationError } from '@integration-host/shared/errors'
import { textResponse } from '@integration-host/shared/http/service-app'
import type { Hono } from 'hono'
import { z } from 'zod'
import { nameIn, type Names } from '../isomorphic/texts.ts'
import {
  ActedRun,
  DecisionBody,
  type Excerpt,
  RunActionBody,
  runActions,
  RunDataView,
  type RunRow,
  RunsView,
  type RunText,
  runTexts,
  RunView,
} from '../contracts/runs.ts'
import type { EntryRow } from '../contracts/entries.ts'
import { activityOfAction } from '../view/activity.ts'
import { isDataRejected } from '../view/error-class.ts'
import type { Installation } from '../view/installation.ts'
import { blockedActions, causeOf, type RunContext, whyOf } from '../view/why.ts'
import { EntryRows } from './entries.ts'
import { guardedRoutes, type Person, type RouteDeps } from './guarded-route.ts'

const MAX_ROWS = 200
const ATTEMPTS = 200
const HISTORY = 20
const ENTRIES = 200
/** Longer texts are cut after this many characters, because a response of 1 MB would freeze the page. */
const MAX_TEXT = 65_536

const ListQuery = z.strictObject({
  ...RunFilter.shape,
  process: z.string().min(1).max(200).optional(),
  order: z.enum(['created', 'updated']).optional().meta({
    description:
      'by the time of the queueing, which is the default, or of the last change; newest first',
  }),
  cursor: z.string().max(4_096).optional(),
  limit: z
    .string()
    .regex(/^(?:[1-9]\d?|1\d\d|200)$/, 'must be a number from 1 to 200')
    .default(String(MAX_ROWS)),
})
const RunParam = z.object({ process: z.string(), id: z.string() })
const RunQuery = z.object({
  run: z
    .string()
    .regex(/^\d{1,10}$/, 'must be a whole number')
    .optional()
    .meta({ description: 'the latest run without it' }),
})
const TextQuery = RunQuery.extend({
  of: z.enum(runTexts),
  step: z.string().max(200).optional(),
})
const ActionParam = RunParam.extend({ action: z.enum(runActions) })

const RunPage = z.object({
  items: z.array(RunResponse.omit({ InitialData: true })),
  next_cursor: z.string().nullable(),
})
const RunList = z.object({
  items: z.array(RunResponse.pick({ ReplayID: true, Status: true, CreatedAt: true })),
})
const EventParam = RunParam.extend({ event: z.string().max(64) })
const Definition = z.object({
  Steps: z.array(z.string()),
  // A coordinator of the release before has none.
  Decisions: z.array(DecisionChoices).default([]),
})
const NOT_LOADED: z.output<typeof Definition> = { Steps: [], Decisions: [] }

/** The routes of runs: the list, one run with its attempts and its data, and the actions on a run. */
export function runRoutes(deps: RouteDeps): Hono {
  const { act, read, readAsOperator, routes } = guardedRoutes(deps, 'runs')
  const { coordinator, companyNames, installation } = deps
  const readData = deps.viewersSeeData ? read : readAsOperator

  /** Returns steps and decisions of a process. The result is empty if no coordinator has loaded the process. */
  async function processOf(by: Person, process: string): Promise<z.output<typeof Definition>> {
    try {
      const path = `/processes/${encodeURIComponent(process)}`
      return await coordinator.send(path, by, Definition)
    } catch (error) {
      if (hasCode(error, 'process_not_found')) return NOT_LOADED
      throw error
    }
  }

  /** Returns what the runs of a transaction have written to the books. A coordinator of the release before has no entries. */
  async function entriesOf(by: Person, process: string, transaction: string): Promise<EntryRow[]> {
    const path = withQuery('/entries', { process, transaction, limit: ENTRIES })
    try {
      return (await coordinator.send(path, by, EntryRows)).items
    } catch (error) {
      if (hasCode(error, 'not_found')) return []
      throw error
    }
  }

  read('/runs', {
    operationId: 'listRuns',
    summary: 'Runs that match a filter, the newest or the last changed first',
    query: ListQuery,
    view: ['a page', RunsView],
    async respond({ by, query: { process, ...filter } }) {
      const path = process === undefined ? '' : `/processes/${encodeURIComponent(process)}`
      const page = await coordinator.send(withQuery(`${path}/transactions`, filter), by, RunPage)
      const names = await companyNames.of(page.items.flatMap(realmsOf))
      const at = installation()
      return {
        Runs: page.items.map((run) => rowOf(run, names, at)),
        Next: page.next_cursor,
        Companies: names,
        Processes: (at.processes ?? []).map(({ name }) => name),
      } satisfies RunsView
    },
  })
  read('/runs/:process/:id', {
    operationId: 'getRun',
    summary: 'One run with its newest attempts, without business data',
    param: RunParam,
    query: RunQuery,
    view: ['the run', RunView],
    async respond({ by, param: { process, id }, query }) {
      const path = pathOf(process, id)
      const [detail, runs, actions, definition, entries] = await Promise.all([
        coordinator.send(
          withQuery(path, { attempts: ATTEMPTS, bodies: 'omit', replay: query.run }),
          by,
          RunDetailResponse,
        ),
        coordinator.send(`${path}/runs`, by, RunList),
        coordinator.send(withQuery('/actions', { process, id, limit: HISTORY }), by, ActionPage),
        processOf(by, process),
        entriesOf(by, process, id),
      ])
      const { InitialData: _data, Items, ...run } = detail
      const names = await companyNames.of(realmsOf(run))
      return {
        ...run,
        Items: Items.map(itemOf),
        Why: whyOf(run, contextOf(run, names, installation())),
        Company: nameIn(names, run.Realm) ?? null,
        Broken: brokenCompany(run.WaitingFor, installation()),
        Steps: definition.Steps,
        Decision: decisionOf(run, definition.Decisions),
        Runs: runs.items,
        Entries: entries,
        History: actions.items.map((action) => ({
          ...activityOfAction(action),
          Action: action.Action,
        })),
        DataRejected: hasRejectedData(run),
        Blocked: { ...blockedActions(run, runs.items[0]?.ReplayID ?? run.ReplayID) },
      } satisfies RunView
    },
  })
  readData('/runs/:process/:id/data', {
    operationId: 'getRunData',
    summary: 'The initial data of a run, and the data and responses of its steps',
    param: RunParam,
    query: RunQuery,
    view: ['the data', RunDataView],
    async respond({ by, param: { process, id }, query: { run } }) {
      const path = withQuery(pathOf(process, id), { attempts: 0, replay: run })
      const found = await coordinator.send(path, by, RunDetailResponse)
      return {
        ReplayID: found.ReplayID,
        Realm: found.Realm,
        Tags: found.Tags,
        InitialData: excerptOf(textOf(found, 'initial')),
        Items: found.Items.map(({ StepName, Ask }) => ({
          StepName,
          Ask: askOf(Ask),
          Data: excerptOf(textOf(found, 'data', StepName)),
          State: excerptOf(textOf(found, 'state', StepName)),
          ResponseBody: excerptOf(textOf(found, 'response', StepName)),
        })),
      } satisfies RunDataView
    },
  })
  readData('/runs/:process/:id/text', {
    operationId: 'getRunText',
    summary: 'The whole initial data of a run, or the whole data or response of a step',
    param: RunParam,
    query: TextQuery,
    responses: {
      200: textResponse('the text', 'text/plain'),
    },
    async respond({ c, by, param: { process, id }, query: { run, of, step } }) {
      const path = withQuery(pathOf(process, id), { attempts: 0, replay: run })
      const found = await coordinator.send(path, by, RunDetailResponse)
      const text = textOf(found, of, step)
      if (text === null)
        throw new IntegrationError('response_not_found', 'The run has no such text')
      return c.body(text, 200, {
        'Content-Type': 'text/plain; charset=utf-8',
        // This header makes browsers save the text instead of showing it, because a target may have sent a page with
        // a script.
        'Content-Disposition': 'attachment; filename="data.txt"',
      })
    },
  })
  act('/runs/:process/:id/decisions/:event', {
    operationId: 'decide',
    summary: 'Decides about the event for which a run waits',
    description: 'The event, and the action log, have the person who decided.',
    param: EventParam,
    body: DecisionBody,
    view: ['done', ActedRun],
    async respond({
      by,
      param: { process, id, event },
      body: { Run, Version, Reason, Choice, Note },
    }) {
      const { Decisions } = await processOf(by, process)
      const choices = Decisions.find(({ Event }) => Event === event)
      if (choices === undefined)
        throw new IntegrationError('event_not_found', `${process} asks for no decision ${event}`)
      const Data = {
        [choices.Member]: Choice,
        ...(choices.HasNote && Note !== undefined && { note: Note }),
      }
      const acted = await coordinator.send(
        `${pathOf(process, id)}/events/${encodeURIComponent(event)}?replay=${Run}`,
        {
          ...by,
          method: 'POST',
          body: { Data, ...(Reason !== undefined && { Reason }) },
          ifVersion: Version,
        },
        SignalResponse,
      )
      return { ReplayID: acted.ReplayID } satisfies ActedRun
    },
  })
  act('/runs/:process/:id/:action', {
    operationId: 'actOnRun',
    summary: 'Resumes, retries, replays, settles, undoes or cancels a run',
    description:
      'The run must have the version that the person has seen; otherwise 412. The person and the reason are in the action log.',
    param: ActionParam,
    body: RunActionBody,
    view: ['done', ActedRun],
    async respond({
      by,
      param: { process, id, action },
      body: { Run, Version, Reason, FromStep, Outcome },
    }) {
      const body = {
        ...(Reason !== undefined && { Reason }),
        ...(action === 'replay' && FromStep !== undefined && { fromStep: FromStep }),
        ...(action === 'settle' && { Outcome }),
      }
      const route = action === 'replay' ? 'replays' : action
      const acted = await coordinator.send(
        `${pathOf(process, id)}/${route}?replay=${Run}`,
        { ...by, method: 'POST', body, ifVersion: Version },
        RunResponse,
      )
      return { ReplayID: acted.ReplayID } satisfies ActedRun
    },
  })
  return routes
}

/** Returns what a person can choose, if the run waits for a decision. */
function decisionOf(
  { Status, WaitingFor }: Pick<RunDetailResponse, 'Status' | 'WaitingFor'>,
  decisions: readonly DecisionChoices[],
): RunView['Decision'] {
  if (Status !== 'Waiting') return null
  const found = decisions.find(({ Event }) => WaitingFor === `event:${Event}`)
  if (found === undefined) return null
  const { Event, HasNote, Choices } = found
  return { Event, HasNote, Choices: Choices.map((Choice) => ({ Choice, Text: factText(Choice) })) }
}

/** Returns what the person is shown who decides. What the coordinator could not decrypt has another form. */
function askOf(stored: unknown): RunDataView['Items'][number]['Ask'] {
  const { data } = DecisionAsk.safeParse(stored)
  if (data === undefined) return null
  const facts = Object.entries(data.facts)
  return { Title: data.title, Facts: facts.map(([Name, fact]) => ({ Name, Text: factText(fact) })) }
}

const pathOf = (process: string, id: string): string =>
  `/processes/${encodeURIComponent(process)}/transactions/${encodeURIComponent(id)}`

type ListedRun = z.output<typeof RunPage>['items'][number]

/** Returns the realms of the companies whose names occur in the texts about a run. */
const realmsOf = ({
  Realm,
  WaitingFor,
}: Pick<ListedRun, 'Realm' | 'WaitingFor'>): readonly string[] => [
  ...new Set([Realm, realmWaitedFor(WaitingFor)].filter((realm) => realm !== null)),
]

const contextOf = (
  { Process, WaitingFor }: Pick<ListedRun, 'Process' | 'WaitingFor'>,
  names: Names,
  at: Installation,
): RunContext => ({
  company: nameIn(names, realmWaitedFor(WaitingFor)),
  mustReconnect: brokenCompany(WaitingFor, at) !== null,
  isPaused: at.processes?.find(({ name }) => name === Process)?.isPaused ?? false,
})

/** Returns the company that a run waits for, if it must be reconnected; otherwise `null`. */
function brokenCompany(waitingFor: string | null, { faulted }: Installation): RunView['Broken'] {
  const credential = faulted.find(
    ({ Name, State }) => Name === waitingFor && State === 'must_reconnect',
  )
  if (credential === undefined) return null
  const { Name, Label, CompanyName } = credential
  return {
    Realm: realmOf(Name),
    ...(Label !== undefined && { Label }),
    ...(CompanyName !== undefined && { CompanyName }),
  }
}

const hasRejectedData = ({
  Status,
  ErrorClass,
}: Pick<ListedRun, 'Status' | 'ErrorClass'>): boolean =>
  Status === 'Failed' && isDataRejected(ErrorClass)

const rowOf = (run: ListedRun, names: Names, at: Installation): RunRow => ({
  Cause: causeOf(run, contextOf(run, names, at)),
  Process: run.Process,
  TransactionID: run.TransactionID,
  ReplayID: run.ReplayID,
  Status: run.Status,
  StepName: run.StepName,
  Realm: run.Realm,
  ErrorClass: run.ErrorClass,
  WaitingFor: run.WaitingFor,
  InDoubt: run.InDoubt,
  Attempt: run.Attempt,
  NextAttemptAt: run.NextAttemptAt,
  CreatedAt: run.CreatedAt,
  UpdatedAt: run.UpdatedAt,
  Why: whyOf(run, contextOf(run, names, at)),
  DataRejected: hasRejectedData(run),
})

/** Returns an item without business data. A report that the coordinator could not decrypt has another form. */
function itemOf({
  ResponseBody: _body,
  Data: _data,
  State: _state,
  Ask: _ask,
  Report: reported,
  ...item
}: RunDetailResponse['Items'][number]): RunView['Items'][number] {
  const report = StepReport.safeParse(reported)
  return report.success ? { ...item, Report: report.data } : item
}

/**
 * Returns a text of a run; `null` if there is none. A value is returned as indented JSON, and a response as it was
 * received.
 */
function textOf(run: RunDetailResponse, of: RunText, step?: string): string | null {
  const item = run.Items.find(({ StepName }) => StepName === step)
  if (of === 'response') return item?.ResponseBody ?? null
  const value =
    of === 'initial' ? run.InitialData : ((of === 'state' ? item?.State : item?.Data) ?? null)
  return value === null ? null : JSON.stringify(value, null, 2)
}

function excerptOf(text: string | null): Excerpt {
  if (text === null) return null
  return {
    Text: text.slice(0, MAX_TEXT),
    IsWhole: text.length <= MAX_TEXT,
    Bytes: Buffer.byteLength(text),
  }
}
