import type { AccessKeys } from '@integration-host/shared/access/access-keys'
import { ActBody } from '@integration-host/shared/contracts/run'
import type { QueueTransaction } from '@integration-host/shared/contracts/transaction'
import { IntegrationError } from '@integration-host/shared/errors'
import { callerOf, identified, needs } from '@integration-host/shared/http/access'
import { onResponseClosed, rawJson } from '@integration-host/shared/http/without-web-streams'
import { onlyKnownQuery } from '@integration-host/shared/http/known-query'
import { headerParameter } from '@integration-host/shared/http/openapi'
import { PREFERENCE_APPLIED, preferredWaitSeconds } from '@integration-host/shared/http/prefer'
import {
  requireJsonLimits,
  jsonResponse,
  problemResponses,
  validate,
} from '@integration-host/shared/http/service-app'
import { type Context, Hono } from 'hono'
import { describeRoute, resolver } from 'hono-openapi'
import { parseClientJson } from '../process/json-normalization.ts'
import { checkedQueueable, Queueable, utf8Of } from '../transaction/queueable.ts'
import { inputInvalid, type Operations, tooManyDelayedRuns } from '../worker/operations.ts'
import { ONLY_RUN } from '../transaction/run-detail.ts'
import type { Run } from '../transaction/run.ts'
import { isOver } from '../transaction/status.ts'
import type { ReplayRequest, TransactionSource } from '../transaction/transaction-source.ts'
import { describeBody, IF_MATCH, queuerOf, readAct, ReplayBody, SettleBody } from './act.ts'
import { bulkRoutes } from './bulk.ts'
import { ChangedRun, changedRun } from './changed-run.ts'
import { ProcessParam, RunQuery, TransactionParam } from './contracts.ts'
import { runDetailRoutes } from './run-detail.ts'
import type { RecordRead } from './read-log.ts'
import type { RunEnds } from './run-ends.ts'

export interface TransactionRouteDeps {
  readonly operations: Operations
  readonly source: TransactionSource
  readonly runEnds: RunEnds
  readonly keys: Pick<AccessKeys, 'identify' | 'watch'>
  readonly recordRead: RecordRead
}

/** Many clients and proxies close a connection on which no response has arrived for a minute. */
const MAX_WAIT_SECONDS = 50

const tags = ['transactions']

/** `/processes/{process}/transactions`: queues, replays, resumes, cancels, retries and settles transactions. */
export function transactionRoutes(deps: TransactionRouteDeps) {
  const { operations, source, runEnds, keys } = deps
  /**
   * Checks the realm of the transaction: a key that is bound to realms may change only runs of its realms. The check
   * needs no lock, because the realm of a transaction never changes.
   */
  const requireRealmOfRun = async (c: Context): Promise<void> => {
    const caller = callerOf(c)
    if (!caller.isBoundToRealms) return
    const { process = '', id = '' } = c.req.param() as Readonly<Record<string, string>>
    const found = await source.get(process, id, null, ONLY_RUN)
    if (found !== null) caller.requireRealmOf(found.run)
  }
  return new Hono()
    .route('/', bulkRoutes(deps))
    .route('/', runDetailRoutes(deps))
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
          ...problemResponses({
            400: 'invalid, or initial data that the process does not accept',
            404: 'no such process',
            409: 'the id exists with other data, realm or tags, or the process is built in',
            413: 'too large',
            415: 'not application/json',
            429: 'the key has too many runs that wait for their start',
            503: 'the store is unavailable',
          }),
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
        const [result] = await operations.queue(process, [transaction], by)
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
      needs('transactions:operate'),
      describeRoute({
        operationId: 'replayTransaction',
        tags,
        summary: 'Run it again, from `fromStep` if given, with other initial data if given',
        description:
          '`replay` names the run that must be the latest one; otherwise 412. The new run shows by `InputChanged` ' +
          'that its initial data differs from that of the run before it.',
        parameters: [IF_MATCH],
        requestBody: describeBody(ReplayBody),
        responses: {
          202: jsonResponse('the new run', ChangedRun),
          ...problemResponses({
            400: 'invalid, initial data that the process does not accept, or a step before `fromStep` was never completed',
            404: 'no such transaction',
            409: 'a run is still active; or `InitialData` is given and the process is built in',
            413: 'too large',
            412: CHANGED,
          }),
        },
      }),
      validate('param', TransactionParam),
      onlyRunQuery,
      validate('query', RunQuery),
      async (c) => {
        const { process, id } = c.req.valid('param')
        const { replay: latest = null } = c.req.valid('query')
        const { body, act } = await readAct(c, ReplayBody)
        const { fromStep = null, InitialData: initialData } = body
        await requireRealmOfRun(c)
        const request = { fromStep, latest, initialData }
        return changed(c, await operations.replay(process, id, request, act), 202, {
          InitialData: initialData,
        })
      },
    )
    .post(
      '/:id/resume',
      needs('transactions:operate'),
      describeRoute({
        operationId: 'resumeTransaction',
        tags,
        summary: 'Resume a failed or cancelled run: same ReplayID, same keys',
        parameters: [IF_MATCH],
        requestBody: describeBody(ActBody),
        responses: {
          202: jsonResponse('the run', ChangedRun),
          ...problemResponses({
            400: 'invalid',
            404: 'no such transaction',
            409: 'not failed or cancelled, or not the latest run',
            412: CHANGED,
          }),
        },
      }),
      validate('param', TransactionParam),
      onlyRunQuery,
      validate('query', RunQuery),
      async (c) => {
        const { process, id } = c.req.valid('param')
        const { replay = null } = c.req.valid('query')
        const { act } = await readAct(c, ActBody)
        await requireRealmOfRun(c)
        return changed(c, await operations.resume(process, id, replay, act), 202)
      },
    )
    .post(
      '/:id/cancel',
      needs('transactions:operate'),
      describeRoute({
        operationId: 'cancelTransaction',
        tags,
        summary: 'Cancel a run; a call in flight is aborted',
        parameters: [IF_MATCH],
        requestBody: describeBody(ActBody),
        responses: {
          200: jsonResponse('the run', ChangedRun),
          ...problemResponses({
            400: 'invalid',
            404: 'no such transaction',
            409: 'not active',
            412: CHANGED,
          }),
        },
      }),
      validate('param', TransactionParam),
      onlyRunQuery,
      validate('query', RunQuery),
      async (c) => {
        const { process, id } = c.req.valid('param')
        const { replay = null } = c.req.valid('query')
        const { act } = await readAct(c, ActBody)
        await requireRealmOfRun(c)
        return changed(c, await operations.cancel(process, id, replay, act), 200)
      },
    )
    .post(
      '/:id/retry',
      needs('transactions:operate'),
      describeRoute({
        operationId: 'retryTransaction',
        tags,
        summary:
          'Make a run due at once that waits for its next attempt, for its start or for a credential',
        parameters: [IF_MATCH],
        requestBody: describeBody(ActBody),
        responses: {
          202: jsonResponse('the run', ChangedRun),
          ...problemResponses({
            400: 'invalid',
            404: 'no such transaction',
            409: 'neither `Retrying` nor `Waiting`, and not delayed',
            412: CHANGED,
          }),
        },
      }),
      validate('param', TransactionParam),
      onlyRunQuery,
      validate('query', RunQuery),
      async (c) => {
        const { process, id } = c.req.valid('param')
        const { replay = null } = c.req.valid('query')
        const { act } = await readAct(c, ActBody)
        await requireRealmOfRun(c)
        return changed(c, await operations.retry(process, id, replay, act), 202)
      },
    )
    .post(
      '/:id/settle',
      needs('transactions:operate'),
      describeRoute({
        operationId: 'settleTransaction',
        tags,
        summary: 'Say whether a step in doubt was done, and continue the run',
        description:
          'With `done` the item of the step is completed with `Data`, and the next step is due; with `not_done` the ' +
          'step is due again. A failed or cancelled run in doubt continues too, if it is the latest one of the ' +
          'transaction; otherwise it stays as it ended.',
        parameters: [IF_MATCH],
        requestBody: describeBody(SettleBody),
        responses: {
          202: jsonResponse('the run', ChangedRun),
          ...problemResponses({
            400: 'invalid, or the process has no step of this name any more',
            404: 'no such transaction',
            409: 'not in doubt, or an attempt of the step is in flight',
            412: CHANGED,
            413: 'too large',
          }),
        },
      }),
      validate('param', TransactionParam),
      onlyRunQuery,
      validate('query', RunQuery),
      async (c) => {
        const { process, id } = c.req.valid('param')
        const { replay = null } = c.req.valid('query')
        const { body, act } = await readAct(c, SettleBody)
        const { Outcome: outcome, Data: data = null } = body
        if (outcome === 'not_done' && body.Data !== undefined)
          throw new IntegrationError('invalid_request', 'Data: is allowed only with Outcome done')
        await requireRealmOfRun(c)
        const settlement = outcome === 'done' ? { outcome, data } : { outcome }
        return changed(c, await operations.settle(process, id, replay, settlement, act), 202)
      },
    )
}

const changed = (
  c: Context,
  run: Run,
  status: 200 | 202,
  brought?: { readonly InitialData: ReplayRequest['initialData'] },
): Response => c.json(changedRun(callerOf(c), run, brought), status)

function throws(check: () => void): boolean {
  try {
    check()
    return false
  } catch {
    return true
  }
}

const onlyRunQuery = onlyKnownQuery(...Object.keys(RunQuery.shape))

const CHANGED = 'the run has another version than `If-Match` names'

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
  requireJsonLimits(text)
  const body = parseClientJson(text)
  if (body === undefined) throw new IntegrationError('invalid_request', 'the body is not JSON')
  const checked = checkedQueueable(body, 'the body')
  if ('transaction' in checked) return checked.transaction
  const { problems } = checked
  throw new IntegrationError('invalid_request', problems.join('; '), {
    members: { errors: problems },
  })
}
