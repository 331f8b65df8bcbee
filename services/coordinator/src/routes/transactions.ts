import { type ActBody, SignalResponse } from '@integration-host/shared/contracts/run'
import type { QueueTransaction } from '@integration-host/shared/contracts/transaction'
import { IntegrationError } from '@integration-host/shared/errors'
import {
  callerOf,
  identified,
  needs,
  onlyKnownQuery,
  PREFERENCE_APPLIED,
  preferredWaitSeconds,
} from '@integration-host/shared/http/request'
import { onResponseClosed, rawJson } from '@integration-host/shared/http/without-web-streams'
import { headerParameter } from '@integration-host/shared/http/openapi'
import { jsonResponse, problems, validate } from '@integration-host/shared/http/service-app'
import { jsonExcess } from '@integration-host/shared/json'
import { type Context, Hono } from 'hono'
import { describeRoute, resolver } from 'hono-openapi'
import type { z } from 'zod'
import { decisionLinkRoutes } from '../decision/decision-routes.ts'
import { parseClientJson } from '../run/json-normalization.ts'
import { checkedQueueable, Queueable, utf8Of } from '../run/queueable.ts'
import { inputInvalid, tooManyDelayedRuns } from '../worker/run-actions.ts'
import type { Run } from '../run/run.ts'
import { firstRunsOf } from '../run/run-detail.ts'
import { isOver } from '../run/status.ts'
import {
  action,
  type ActionRequest,
  type ActSchema,
  type Brought,
  ChangedRun,
  changedRun,
  queuerOf,
  ReplayBody,
  SettleBody,
  SignalBody,
} from './act.ts'
import { bulkRoutes } from './bulk.ts'
import { EventParam, ProcessParam, RunQuery, TransactionParam } from './contracts.ts'
import { runDetailRoutes } from './run-detail.ts'
import type { AppDeps } from '../core.ts'

/** Many clients and proxies close a connection on which no response has arrived for a minute. */
const MAX_WAIT_SECONDS = 50

const tags = ['transactions']

/**
 * `/processes/{process}/transactions`: queues, replays, resumes, cancels, retries and settles transactions, and sends
 * events to them.
 */
export function transactionRoutes(deps: AppDeps) {
  const { runActions, source, runEnds, keys } = deps
  /**
   * Checks the realm of the transaction: a key that is bound to realms may change only runs of its realms. The check
   * needs no lock, because the realm of a transaction never changes.
   */
  const requireRealmOfRun = async (c: Context): Promise<void> => {
    const caller = callerOf(c)
    if (!caller.isBoundToRealms) return
    const { process = '', id = '' } = c.req.param() as Readonly<Record<string, string>>
    for (const run of await firstRunsOf(source, process, [id])) caller.requireRealmOf(run)
  }
  /** Returns the members that the actions on a run share. The response shows what `brought` returns of the body. */
  const onRun = <Schema extends ActSchema = typeof ActBody>(
    act: (run: RunArguments, request: RunRequest<Schema>) => Promise<Run>,
    {
      status = 202,
      brought,
    }: { status?: 200 | 202; brought?: (body: z.output<Schema>) => Brought } = {},
  ) => ({
    tags,
    param: TransactionParam,
    query: RunQuery,
    success: { [status]: ChangedRun },
    async apply(request: RunRequest<Schema>) {
      const { c, caller, param, query, body } = request
      await requireRealmOfRun(c)
      const run = await act([param.process, param.id, query.replay ?? null], request)
      return c.json(changedRun(caller, run, brought?.(body)), status)
    },
  })
  return new Hono()
    .route('/', bulkRoutes(deps))
    .route('/', runDetailRoutes(deps))
    .route('/', decisionLinkRoutes(deps, requireRealmOfRun))
    .post(
      '/',
      needs('transactions:queue'),
      describeRoute({
        operationId: 'queueTransaction',
        tags,
        summary: 'Queue a transaction; it is durable before the response',
        description:
          'With `Prefer: wait=30` the response is sent when the run has ended, and after 30 seconds at the latest: 200 ' +
          'if the run has ended, otherwise 202. Repeat the request to continue waiting. A key without ' +
          '`transactions:read` does not wait.',
        parameters: [
          headerParameter(
            'Prefer',
            `\`wait=<seconds>\` (RFC 7240): wait for the end of the run, at most ${MAX_WAIT_SECONDS} seconds. The ` +
              'response has `Preference-Applied` with this time, unless too many requests wait already, or the key ' +
              'lacks `transactions:read`',
          ),
        ],
        requestBody: {
          required: true,
          content: { 'application/json': { schema: resolver(Queueable) } },
        },
        responses: {
          202: {
            ...jsonResponse(
              'queued, or absorbed by the waiting run with the same Debounce key, which is returned; with ' +
                '`Prefer: wait`, the run has not ended',
              ChangedRun,
            ),
            headers: PREFERENCE_APPLIED,
          },
          200: {
            ...jsonResponse(
              'a transaction with this id, data, realm and tags exists already; with `Prefer: wait`, the run has ended',
              ChangedRun,
            ),
            headers: PREFERENCE_APPLIED,
          },
          ...problems(
            'invalid_request',
            'input_invalid',
            'process_not_found',
            'transaction_conflict',
            'process_built_in',
            'unsupported_media_type',
            'quota_exceeded',
          ),
        },
      }),
      onlyKnownQuery(),
      validate('param', ProcessParam),
      async (c) => {
        const { process } = c.req.valid('param')
        const transaction = await readTransaction(c)
        const caller = callerOf(c)
        caller.requireRealmOf(transaction)
        const by = queuerOf(c, [transaction])
        const [result] = await runActions.queue(process, [transaction], by)
        if (result?.outcome === 'invalid') throw inputInvalid(result.errors)
        if (result?.outcome === 'limited') throw tooManyDelayedRuns()
        if (result === undefined || result.outcome === 'conflict')
          throw new IntegrationError(
            'transaction_conflict',
            'the id exists with other data, realm or tags',
          )
        // The end of a run shows what its steps have done, so a key that may only queue does not wait for it.
        const preferred = caller.has('transactions:read') ? preferredWaitSeconds(c) : null
        if (preferred === null) {
          const run = changedRun(caller, result.run, transaction)
          return rawJson(c, run, result.outcome === 'exists' ? 200 : 202)
        }
        const seconds = Math.min(preferred, MAX_WAIT_SECONDS)
        // The key may be revoked, expire, or lose a scope or a company, while the request waits.
        const requireStillPermitted = (): void => {
          const current = identified(c, keys)
          current.requireScope('transactions:read')
          current.requireProcess(process)
          current.requireRealmOf(transaction)
        }
        using stack = new DisposableStack()
        const ended = await runEnds.wait(result, caller, seconds * 1_000, (stopWaiting) => {
          onResponseClosed(c, stopWaiting)
          stack.defer(keys.watch(() => throws(requireStillPermitted) && stopWaiting()))
        })
        if (ended !== null) {
          requireStillPermitted()
          c.header('Preference-Applied', `wait=${seconds}`)
        }
        const run = ended ?? result.run
        return rawJson(c, run, isOver(run.Status) ? 200 : 202)
      },
    )
    .post(
      '/:id/replays',
      ...action({
        ...onRun<typeof ReplayBody>(
          ([process, id, latest], { body, act }) => {
            const { fromStep = null, InitialData: initialData } = body
            return runActions.replay(process, id, { fromStep, latest, initialData }, act)
          },
          { brought: ({ InitialData }) => ({ InitialData }) },
        ),
        operationId: 'replayTransaction',
        summary: 'Run it again, from `fromStep` if given, with other initial data if given',
        description:
          '`replay` names the run that must be the latest one; otherwise 412. The new run shows by `InputChanged` ' +
          'that its initial data differs from that of the run before it.',
        body: ReplayBody,
        problems: [
          ...ofRun,
          'invalid_request',
          'input_invalid',
          'step_not_found',
          'transaction_active',
          'transaction_erased',
          'transaction_purged',
          'process_built_in',
        ],
      }),
    )
    .post(
      '/:id/resume',
      ...action({
        ...onRun((run, { act }) => runActions.resume(...run, act)),
        operationId: 'resumeTransaction',
        summary: 'Resume a failed or cancelled run, or a failed undo: same ReplayID, same keys',
        problems: [
          ...ofRun,
          'transaction_not_resumable',
          'transaction_erased',
          'transaction_purged',
        ],
      }),
    )
    .post(
      '/:id/undo',
      ...action({
        ...onRun((run, { act }) => runActions.undo(...run, act)),
        operationId: 'undoTransaction',
        summary:
          'Undo the finished steps of a failed, cancelled or completed run, the last one first',
        description:
          'The run is `Undoing` until it ends as `Undone`, or as `UndoFailed`, from where a resume goes on. A step in doubt is ' +
          'decided first. Steps without `undo` are left, and named in `LastError`.',
        problems: [
          ...ofRun,
          'transaction_not_undoable',
          'transaction_erased',
          'transaction_purged',
        ],
      }),
    )
    .post(
      '/:id/cancel',
      ...action({
        ...onRun((run, { act }) => runActions.cancel(...run, act), { status: 200 }),
        operationId: 'cancelTransaction',
        summary: 'Cancel a run; a call in flight is aborted',
        problems: [...ofRun, 'transaction_not_active'],
      }),
    )
    .post(
      '/:id/retry',
      ...action({
        ...onRun((run, { act }) => runActions.retry(...run, act)),
        operationId: 'retryTransaction',
        summary:
          'Make a run due at once that waits for its next attempt, for its start or for a credential',
        problems: [...ofRun, 'transaction_not_retryable'],
      }),
    )
    .post(
      '/:id/settle',
      ...action({
        ...onRun<typeof SettleBody>((run, { body, act }) => {
          const { Outcome: outcome, Data: data = null } = body
          return runActions.settle(
            ...run,
            outcome === 'done' ? { outcome, data } : { outcome },
            act,
          )
        }),
        operationId: 'settleTransaction',
        summary: 'Say whether a step in doubt was done, and continue the run',
        description:
          'With `done` the item of the step is completed with `Data`, and the next step is due; with `not_done` the ' +
          'step is due again. A failed or cancelled run in doubt continues too, if it is the latest one of the ' +
          'transaction; otherwise it stays as it ended.',
        body: SettleBody,
        problems: [
          ...ofRun,
          'invalid_request',
          'step_not_found',
          'transaction_not_in_doubt',
          'step_in_flight',
        ],
      }),
    )
    .post(
      '/:id/events/:name',
      ...action<typeof EventParam, typeof RunQuery, typeof SignalBody>({
        operationId: 'signalTransaction',
        tags,
        summary: 'Send an event to a run that waits for it, or will wait for it',
        description:
          'A run keeps one event for each place: the first. A repetition with the same `EventID`, or without one with the ' +
          'same data, gets the first one. An event may arrive before the run gets to its place.',
        scope: 'transactions:signal',
        param: EventParam,
        query: RunQuery,
        body: SignalBody,
        success: { 200: SignalResponse },
        problems: [
          ...ofRun,
          'invalid_request',
          'input_invalid',
          'event_not_found',
          'event_already_received',
          'transaction_not_active',
          'transaction_purged',
        ],
        async apply({ c, caller, param, query, body, act }) {
          await requireRealmOfRun(c)
          const event = { data: body.Data ?? null, eventId: body.EventID ?? null }
          const to = [param.process, param.id, query.replay ?? null, param.name] as const
          const mayRead = caller.has('transactions:read')
          return rawJson(c, await runActions.signal(...to, event, act, mayRead))
        },
      }),
    )
}

function throws(check: () => void): boolean {
  try {
    check()
    return false
  } catch {
    return true
  }
}

type RunArguments = readonly [process: string, id: string, replay: number | null]
type RunRequest<Schema extends ActSchema> = ActionRequest<
  typeof TransactionParam,
  typeof RunQuery,
  Schema
>

/** The problems of every action on a run. */
const ofRun = ['process_not_found', 'transaction_not_found', 'version_moved'] as const

/**
 * Returns the transaction in the body of a request.
 *
 * @throws {IntegrationError} `unsupported_media_type` or `invalid_request`
 */
async function readTransaction(c: Context): Promise<QueueTransaction> {
  const type = c.req.header('Content-Type')?.split(';')[0]?.trim().toLowerCase()
  if (type !== 'application/json')
    throw new IntegrationError('unsupported_media_type', 'send application/json')
  const text = utf8Of(await c.req.arrayBuffer())
  const body = parseClientJson(text)
  if (body === undefined)
    throw new IntegrationError('invalid_request', jsonExcess(text) ?? 'the body is not JSON')
  const checked = checkedQueueable(body, 'the body')
  if ('transaction' in checked) return checked.transaction
  throw new IntegrationError('invalid_request', checked.problems.join('; '), {
    members: { errors: checked.problems },
  })
}
