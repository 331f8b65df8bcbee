import { ErasureResult } from '@integration-host/shared/contracts/operations'
import { Realm } from '@integration-host/shared/contracts/realm'
import { TransactionID } from '@integration-host/shared/contracts/transaction'
import { ActBody } from '@integration-host/shared/contracts/run'
import { IntegrationError } from '@integration-host/shared/errors'
import { callerOf, needs, onlyKnownQuery } from '@integration-host/shared/http/request'
import { responses } from '@integration-host/shared/http/service-app'
import { type Context, Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { ErasureScope } from '../run/erasure.ts'
import { firstRunsOf } from '../run/run-detail.ts'
import { describeBody, readAct, rejectVersion } from '../routes/act.ts'
import type { AppDeps } from '../core.ts'

const MAX_IDS = 1_000
/** The time after which an erasure sends its response, even if runs remain, so that clients do not time out. */
const MAX_MS = 20_000
const ErasureBody = ActBody.extend({
  Realm: Realm.optional(),
  Process: z.string().min(1).max(200).optional(),
  Ids: z.array(TransactionID).min(1).max(MAX_IDS).optional(),
  CancelWaiting: z.boolean().optional().meta({
    description:
      'with Realm: first cancel the runs that wait for an event, a change, or the end of the pause of the company',
  }),
}).meta({ ref: 'StartErasure' })

/** `POST /erasures` blanks the data of runs that have ended. */
export function erasureRoutes({ erase, source, runActions }: AppDeps) {
  return new Hono().post(
    '/',
    needs('transactions:operate'),
    describeRoute({
      operationId: 'createErasure',
      tags: ['operations'],
      summary: 'Erase the data of the ended runs of a company, or of some transactions',
      description:
        'The body names a `Realm`, optionally with a `Process`, or a `Process` with `Ids`. Initial data, tags, ' +
        'responses, item data, errors and files go; ids, statuses, times and error classes stay. No run is cancelled, unless `CancelWaiting` is true: ' +
        'then the runs of the company that wait for an event, a change, or the end of its pause are. The erasure of a company ends its pause once none of its runs is left.',
      requestBody: { ...describeBody(ErasureBody), required: true },
      responses: responses(ErasureResult, 'process_not_found'),
    }),
    onlyKnownQuery(),
    async (c) => {
      const { body, act } = await readAct(c, ErasureBody)
      rejectVersion(act, 'an erasure')
      const scope = scopeOf(body)
      await requireScope(c, scope)
      if (scope.Process !== null) await runActions.requireKnown(scope.Process)
      const { CancelWaiting: cancelsWaiting = false } = body
      if (cancelsWaiting && 'Ids' in scope)
        throw new IntegrationError('invalid_request', 'CancelWaiting needs Realm')
      return c.json(await erase(scope, act, AbortSignal.timeout(MAX_MS), cancelsWaiting))
    },
  )

  /** @throws {IntegrationError} `forbidden` if the key may not change some of these runs. */
  async function requireScope(c: Context, scope: ErasureScope): Promise<void> {
    const caller = callerOf(c)
    if (scope.Process === null) caller.requireEveryProcess()
    else caller.requireProcess(scope.Process)
    if (!('Ids' in scope)) return caller.requireRealm(scope.Realm)
    if (!caller.isBoundToRealms) return
    const runs = await firstRunsOf(source, scope.Process, scope.Ids)
    for (const run of runs) caller.requireRealmOf(run)
  }
}

function scopeOf({ Realm: realm, Process, Ids }: z.output<typeof ErasureBody>): ErasureScope {
  if (realm !== undefined && Ids === undefined) return { Realm: realm, Process: Process ?? null }
  if (realm === undefined && Ids !== undefined && Process !== undefined) return { Process, Ids }
  throw new IntegrationError('invalid_request', 'send Realm, or Process with Ids')
}
