import {
  ChildPage,
  type FamilyView,
  RunDetailResponse,
} from '@integration-host/shared/contracts/run'
import { IntegrationError } from '@integration-host/shared/errors'
import { callerOf, needs } from '@integration-host/shared/http/request'
import {
  knownQuery,
  problems,
  responses,
  textResponse,
  validate,
} from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { isCovered } from '@integration-host/shared/access/caller'
import { commonPrefix } from '../run/child-id.ts'
import type { Family } from '../run/families.ts'
import { runKey } from '../run/run.ts'
import { notFound } from '../run/errors.ts'
import { ONLY_RUN } from '../run/run-detail.ts'
import {
  ChildrenQuery,
  ItemParam,
  RunDetailQuery,
  RunQuery,
  RunsQuery,
  RunsResponse,
  TransactionParam,
} from './contracts.ts'
import type { AppDeps } from '../core.ts'

/**
 * The headers that prevent a browser from rendering a response of another system, because the response may contain a
 * script, which would run with the origin of this service.
 */
const NEVER_RENDERED = {
  'Content-Type': 'text/plain; charset=utf-8',
  'Content-Disposition': 'attachment',
  'Content-Security-Policy': "default-src 'none'; sandbox",
}

const tags = ['transactions']

/**
 * `/processes/{process}/transactions/{id}`: a run, the list of the runs of a transaction, and the response of a step.
 */
export function runDetailRoutes({ runActions, source, recordRead }: AppDeps) {
  return new Hono()
    .get(
      '/:id',
      needs('transactions:read'),
      describeRoute({
        operationId: 'getTransaction',
        tags,
        summary: 'One run with its items and newest attempts; the latest unless `replay` names one',
        description:
          'With `bodies=omit`, `ResponseBody` and `Data` of the items are null. `AttemptCount` counts all attempts.',
        responses: responses(RunDetailResponse, 'process_not_found', 'transaction_not_found'),
      }),
      validate('param', TransactionParam),
      knownQuery(RunDetailQuery),
      async (c) => {
        const { process, id } = c.req.valid('param')
        const { replay = null, attempts, bodies } = c.req.valid('query')
        await runActions.requireKnown(process)
        const parts = { attempts, bodies: bodies !== 'omit', families: true }
        const found = await source.get(process, id, replay, parts)
        if (found === null) throw notFound(process, id, replay)
        const caller = callerOf(c)
        caller.requireRealmOf(found.run)
        // Applications read their runs all the time, so only what a person reads is recorded.
        if (parts.bodies && caller.person !== null) {
          const { ReplayID: replayId } = found.run
          const read = { process, transactionId: id, replayId, filter: null }
          await recordRead(caller, { kind: 'read_data', ...read })
        }
        const position = (step: string): number => runActions.stepNames(process).indexOf(step)
        const families = found.families.toSorted((a, b) => position(a.Place) - position(b.Place))
        return c.json({
          ...found.run,
          ...found.lease,
          ...(families.length > 0 && {
            Children: families.map((family) =>
              familyView(family, runActions.stepNames(family.ChildProcess).length > 0),
            ),
          }),
          Items: found.items.toSorted((a, b) => position(a.StepName) - position(b.StepName)),
          Attempts: found.attempts,
          AttemptCount: found.attemptCount,
        })
      },
    )
    .get(
      '/:id/runs',
      needs('transactions:read'),
      describeRoute({
        operationId: 'listRuns',
        tags,
        summary: 'The runs of a transaction without their data, the latest first',
        responses: responses(RunsResponse, 'process_not_found', 'transaction_not_found'),
      }),
      validate('param', TransactionParam),
      knownQuery(RunsQuery),
      async (c) => {
        const { process, id } = c.req.valid('param')
        const { before, limit } = c.req.valid('query')
        await runActions.requireKnown(process)
        const runs = await source.runsOf(process, [id], { before, limit: limit + 1 })
        const [first] = runs
        if (first === undefined && before === undefined) throw notFound(process, id, null)
        if (first !== undefined) callerOf(c).requireRealmOf(first) // all runs of a transaction have the same realm
        const items = runs
          .slice(0, limit)
          .map(({ TransactionID: _id, Realm: _realm, ...run }) => run)
        const last = runs.length > limit ? items.at(-1) : undefined
        return c.json({ items, next_before: last?.ReplayID ?? null })
      },
    )
    .get(
      '/:id/children',
      needs('transactions:read'),
      describeRoute({
        operationId: 'listChildren',
        tags,
        summary: 'The children that a place of a run has started, in the order of the list',
        description:
          'A page omits children of companies and processes that the key may not see, so it may have fewer than `limit` although more follow. There are more as long as `next_after` is not null.',
        responses: responses(ChildPage, 'process_not_found', 'transaction_not_found'),
      }),
      validate('param', TransactionParam),
      knownQuery(ChildrenQuery),
      async (c) => {
        const { process, id } = c.req.valid('param')
        const { replay = null, place, status, after = -1, limit } = c.req.valid('query')
        await runActions.requireKnown(process)
        const found = await source.get(process, id, replay, { ...ONLY_RUN, families: true })
        if (found === null) throw notFound(process, id, replay)
        const caller = callerOf(c)
        caller.requireRealmOf(found.run)
        const Place = place ?? found.families[0]?.Place
        if (Place === undefined) return c.json({ items: [], next_after: null })
        const key = { ...runKey(found.run), Place }
        const filter = { after, limit, ...(status !== undefined && { statuses: status }) }
        const rows = await source.children(key, filter)
        const items = rows
          .filter(
            ({ Process, Realm }) =>
              isCovered(Process, caller.processes) &&
              (Realm === null || isCovered(Realm, caller.realms)),
          )
          .map(({ Data: _data, ...row }) => row)
        return c.json({
          items,
          next_after: rows.length < limit ? null : (rows.at(-1)?.Item ?? null),
        })
      },
    )
    .get(
      '/:id/items/:step/body',
      needs('transactions:read'),
      describeRoute({
        operationId: 'getStepResponse',
        tags,
        summary: 'The response of a step, as it was stored',
        responses: {
          200: textResponse('the body', 'text/plain'),
          ...problems('process_not_found', 'transaction_not_found', 'response_not_found'),
        },
      }),
      validate('param', ItemParam),
      knownQuery(RunQuery),
      async (c) => {
        const { process, id, step } = c.req.valid('param')
        const { replay = null } = c.req.valid('query')
        await runActions.requireKnown(process)
        const found = await source.get(process, id, replay, { attempts: 0, bodies: { step } })
        if (found === null) throw notFound(process, id, replay)
        callerOf(c).requireRealmOf(found.run)
        const body = found.items[0]?.ResponseBody ?? null
        if (body === null)
          throw new IntegrationError('response_not_found', 'the step has no stored response')
        const read = { process, transactionId: id, replayId: replay, filter: `response of ${step}` }
        await recordRead(callerOf(c), { kind: 'read_data', ...read })
        return c.body(body, 200, NEVER_RENDERED)
      },
    )
}

/** Returns the counts of a family as the API shows them. */
const familyView = (
  {
    Place,
    ChildProcess,
    Prefix,
    Total,
    Stored,
    Pending,
    Waiting,
    Failed,
    Tolerated,
    Concurrent,
  }: Family,
  IsLoaded: boolean,
): FamilyView => ({
  Place,
  Process: ChildProcess,
  IsLoaded,
  IdPrefix: commonPrefix(Prefix),
  Total,
  Active: Pending,
  Waiting,
  Completed: Stored - Pending - Failed,
  Failed,
  Tolerated,
  Concurrent,
})
