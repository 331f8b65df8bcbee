/**
 * The built-in process that takes back one object, which a run has created in the books of a company. A run of it is queued
 * for each object of an operation with the action `take-back`.
 *
 * K1  The id of a run is that of the operation and of the object, so a repetition of the operation does nothing.
 * K2  The step `look` reads the object and decides. The step `remove` sends the `SyncToken` that `look` has read, so an
 *     object that was changed in between is not removed.
 * K3  What belongs to another object waits until that one is over: an invoice for its payments, an object of a list for all
 *     transactions of the operation. Everything else is taken back at once.
 */
import { hash } from 'node:crypto'
import { credentialName, Realm } from '@integration-host/shared/contracts/realm'
import {
  EntityName,
  providerEntities,
  ReportedEntityId,
} from '@integration-host/shared/contracts/provider-event'
import { z } from 'zod'
import type { Operation } from '../bulk/bulk-operation.ts'
import type { OperationStore } from '../bulk/bulk-operation-store.ts'
import { type EntryRow, readEntries } from '../entry/book-entry.ts'
import type { EntryKeeper } from '../entry/entry-keeper.ts'
import type { StepOutcome } from '../run/progress.ts'
import type { RunDetail } from '../run/run-detail.ts'
import { isOver } from '../run/status.ts'
import type { Claim, TransactionSource } from '../run/transaction-source.ts'
import { closingDateOf, type ClosingDates } from '../step/closing-dates.ts'
import { ofObject } from '../step/built-in.ts'
import { defineProcess } from '../step/define-process.ts'
import type { ProcessDefinition } from '../step/definition.ts'
import type { Gateway } from '../step/step-request.ts'
import type { Outcome } from '../step/step.ts'
import type { Json } from '../run/json-normalization.ts'
import { readObject } from '../step/read-object.ts'
import type { SendDeps } from '../step/send-call.ts'
import {
  isApplied,
  isPaid,
  type Left,
  type LeftReason,
  leftReason,
  linksTo,
  type RemovalKind,
  removalOf,
} from './removal.ts'

export const TAKE_BACK = 'TakeBack'
const LOOK = 'look'
const REMOVE = 'remove'

/** The initial data of a run of {@link TAKE_BACK}. */
export const TakeBackData = z.object({
  Operation: z.string(),
  Entity: EntityName,
  EntityID: ReportedEntityId,
  /** When the creation of the object was recorded. */
  CreatedAt: z.iso.datetime(),
  DryRun: z.boolean(),
  /** Why the object is left without a look at it. */
  Left: z.enum(['run_active', 'run_in_doubt']).optional(),
})
export type TakeBackData = z.output<typeof TakeBackData>

/** The result of both steps. */
const Looked = z.union([
  z.object({ Action: z.enum(['delete', 'inactivate']), SyncToken: z.string() }),
  z.object({
    Left: z.string(),
    Fields: z.array(z.string()).optional(),
    /** The provider's code, if it has refused the removal. */
    Code: z.string().optional(),
  }),
])

/** Returns the result of a run; `null` if it has none, because it is not completed. */
export function resultOf({ run, items }: Pick<RunDetail, 'run' | 'items'>) {
  const item = items.find(({ StepName }) => StepName === REMOVE) ?? items[0]
  const { data } = Looked.safeParse(item?.Data ?? null)
  return run.Status === 'Completed' ? (data ?? null) : null
}

/**
 * Returns the id of the run that takes back an object: `<operation>/<entity>-<id>`. For an object of another company than
 * the one that the operation is for, it also contains the company, because two companies may have objects of one id.
 */
export function takeBackId(
  { ID, Request }: Pick<Operation, 'ID' | 'Request'>,
  { realm, entity, id }: { readonly realm: string; readonly entity: string; readonly id: string },
): string {
  const only = Request.Filter?.realm
  const company = only?.length === 1 && only[0] === realm ? '' : `${shortRealm(realm)}/`
  return `${ID}/${company}${entity}-${id}`
}

/** Returns the id of the run of the same operation for another object of the same company. */
export const siblingId = (
  runId: string,
  { entity, id }: { readonly entity: string; readonly id: string },
) => `${runId.slice(0, runId.lastIndexOf('/') + 1)}${entity}-${id}`

/** The id of a transaction has at most 128 characters, and the longest realm has 64. Those of Intuit have 16 digits. */
const shortRealm = (realm: string): string =>
  realm.length <= MAX_REALM ? realm : hash('sha256', realm).slice(0, MAX_REALM)
const MAX_REALM = 24

/** The pause after a response of an unavailable provider. */
const UNAVAILABLE_MS = 30_000
/** The reasons for which the provider refuses a removal, by its code. */
const refusedAs: Readonly<Record<string, LeftReason>> = {
  '610': 'gone',
  '5010': 'changed_outside',
  '6000': 'linked',
  '6200': 'books_closed',
  '6210': 'books_closed',
}
/** The pause before a run is looked at again that waits for others. */
const WAIT_MS = 2_000
/** The maximum number of entries of an object that are read. */
const MAX_ENTRIES = 1_000

export interface TakeBackDeps {
  readonly source: Pick<TransactionSource, 'get' | 'records' | 'search'>
  readonly operations: Pick<OperationStore, 'operation'>
  readonly entryKeeper: Pick<EntryKeeper, 'changedFields'>
  readonly closingDates: Pick<ClosingDates, 'of'>
  readonly faultOf: Gateway['faultOf']
}

/** Builds the process `TakeBack`. */
export function createTakeBackProcess(deps: TakeBackDeps): ProcessDefinition {
  const { source } = deps
  const definition = defineProcess(TAKE_BACK, {
    input: TakeBackData,
    retry: { maxAttempts: 20, baseMs: 5_000, capMs: 900_000 },
  })
    .step(LOOK, (step) => step.complete()) // runs in `runBuiltIn`
    .step(
      REMOVE,
      async (step): Promise<Outcome<Json>> => {
        const { Entity, EntityID: Id } = step.initialData
        const { Action, SyncToken } = removalFrom(step.item(LOOK).data)
        const isDeletion = Action === 'delete'
        const { ok, status, body } = await step.fetch(
          {
            method: 'POST',
            url: `/v3/company/${step.realm}/${Entity.toLowerCase()}`,
            ...(isDeletion && { query: { operation: 'delete' } }),
            body: { Id, SyncToken, ...(!isDeletion && { sparse: true, Active: false }) },
          },
          { credential: credentialName(Realm.parse(step.realm)) },
        )
        if (ok) return step.complete({ Action, SyncToken })
        if (status >= 500) return step.waitFor(UNAVAILABLE_MS)
        const code = deps.faultOf(body)?.code ?? `http_${status}`
        return step.complete({ Left: refusedAs[code] ?? 'refused', Code: code })
      },
      {
        async confirm(step) {
          const { Entity, EntityID } = step.initialData
          // A query returns neither deleted nor inactive objects.
          const found = await step.find(
            {
              url: `/v3/company/${step.realm}/query`,
              query: { query: `select Id from ${Entity} where Id = '${EntityID}'` },
            },
            {
              credential: credentialName(Realm.parse(step.realm)),
              parse: (body) => Found.parse(body).QueryResponse[Entity] !== undefined,
            },
          )
          return found?.data === false
            ? step.complete<Json>({ ...removalFrom(step.item(LOOK).data) })
            : 'not_done'
        },
      },
    )

  /** Whether a transaction of the operation that may belong to an object of a list is not over. */
  async function hasActiveTransactions(operation: string, realm: string): Promise<boolean> {
    const { runs, next } = await source.search({
      process: TAKE_BACK,
      filter: {
        idPrefix: `${operation}/`,
        children: true,
        realm: [realm],
        status: ['Queued', 'Running', 'Retrying', 'Waiting'],
      },
      order: 'created',
      visible: { realms: ['*'], processes: [TAKE_BACK] },
      after: null,
      limit: 200,
    })
    const isTransaction = ({ TransactionID }: { TransactionID: string }): boolean =>
      removalOf(/\/([A-Za-z0-9]+)-[^/]*$/.exec(TransactionID)?.[1] ?? '') === 'delete'
    return runs.some(isTransaction) || next !== null
  }

  /**
   * Whether the links of the object allow its removal: `ours` if objects of this operation were applied to it, which are
   * gone, or will be if the operation is not a dry run.
   */
  async function judgeLinks(
    { Operation, CreatedAt }: TakeBackData,
    runId: string,
    links: ReturnType<typeof linksTo>,
  ): Promise<'free' | 'ours' | 'linked' | 'wait'> {
    let result: 'free' | 'ours' = 'free'
    for (const { entity, id } of links) {
      const found = await source.get(TAKE_BACK, siblingId(runId, { entity, id }), null)
      if (found === null) return (await isQueueing(Operation)) ? 'wait' : 'linked'
      const other = TakeBackData.parse(found.run.InitialData)
      if (!isApplied(entity) && other.CreatedAt <= CreatedAt) continue
      if (!isOver(found.run.Status)) return 'wait'
      const looked = resultOf(found)
      if (looked === null || 'Left' in looked) return 'linked'
      result = 'ours'
    }
    return result
  }

  const isQueueing = async (operation: string): Promise<boolean> =>
    (await deps.operations.operation(operation))?.Status === 'Running'

  async function look(
    data: TakeBackData,
    realm: string,
    { run }: Claim,
    send: SendDeps,
  ): Promise<StepOutcome> {
    const { EntityID: id, DryRun } = data
    if (data.Left !== undefined) return left({ reason: data.Left })
    const entity = providerEntities.find((name) => name === data.Entity)
    const action = entity === undefined ? null : removalOf(entity)
    if (entity === undefined || action === null) return left({ reason: 'not_supported' })
    const newest = await newestEntry(realm, entity, id)
    if (newest === undefined || newest.Operation === 'delete') return left({ reason: 'gone' })
    const calling = { process: definition, run }
    const reading = await readObject({ realm, entity, id }, calling, send)
    if ('end' in reading) return reading.end
    const { object } = reading
    if (object === null) return left({ reason: 'gone' })
    const changed = await deps.entryKeeper.changedFields(newest, object)
    const closedUntil = await closingDateOf(realm, calling, {
      ...send,
      closingDates: deps.closingDates,
    })
    const reason = leftReason(newest, object, changed, closedUntil)
    if (reason !== null) return left(reason)
    if (action === 'inactivate') {
      const isEarly =
        !DryRun &&
        ((await isQueueing(data.Operation)) || (await hasActiveTransactions(data.Operation, realm)))
      return isEarly ? WAIT : removal(action, object['SyncToken'], DryRun)
    }
    const links = await judgeLinks(data, run.TransactionID, linksTo(entity, object))
    if (links === 'wait') return WAIT
    const isSettled = !isApplied(entity) && isPaid(object)
    if (links === 'linked') return left({ reason: isSettled ? 'paid' : 'linked' })
    if (links === 'free' && isSettled) return left({ reason: 'paid' })
    if (links === 'free' || DryRun) return removal(action, object['SyncToken'], DryRun)
    // The removed payments have given the object another version.
    const again = await readObject({ realm, entity, id }, calling, send)
    if ('end' in again) return again.end
    if (again.object === null) return left({ reason: 'gone' })
    const isFree = !linksTo(entity, again.object).some((link) => isApplied(link.entity))
    return isFree ? removal(action, again.object['SyncToken'], DryRun) : left({ reason: 'linked' })
  }

  async function newestEntry(
    realm: string,
    entity: string,
    id: string,
  ): Promise<EntryRow | undefined> {
    const entries = await readEntries(source, { realm, entity, id }, { limit: MAX_ENTRIES })
    return entries.find(({ State }) => State !== 'Superseded')
  }

  return {
    ...definition,
    runBuiltIn: (claim, send) =>
      claim.run.StepName === LOOK
        ? ofObject(claim.run, TakeBackData, (realm, data) => look(data, realm, claim, send))
        : undefined,
  }
}

const Found = z.object({ QueryResponse: z.record(z.string(), z.unknown()) })

function removalFrom(looked: unknown): {
  readonly Action: RemovalKind
  readonly SyncToken: string
} {
  const data = Looked.parse(looked)
  if ('Left' in data) throw new TypeError('the object is left')
  return data
}

const WAIT: StepOutcome = { kind: 'later', delayMs: WAIT_MS }

const left = ({ reason, fields }: Left): StepOutcome => ({
  kind: 'completed',
  response: null,
  data: { Left: reason, ...(fields !== undefined && { Fields: [...fields] }) },
  endsRun: true,
})

const removal = (Action: RemovalKind, token: unknown, isDryRun: boolean): StepOutcome => ({
  kind: 'completed',
  response: null,
  data: { Action, SyncToken: typeof token === 'string' ? token : '0' },
  endsRun: isDryRun,
})
