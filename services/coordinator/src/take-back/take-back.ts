/**
 * The action `take-back` of bulk operations: voids or deletes what the runs of the operation have created in the books of
 * their companies, by one run of the process `TakeBack` for each object.
 */
import type { TakenObject } from '@integration-host/shared/contracts/operations'
import { isCovered } from '@integration-host/shared/access/caller'
import { IntegrationError } from '@integration-host/shared/errors'
import type { Operation, OperationTarget } from '../bulk/bulk-operation.ts'
import { type EntryPosition, type EntryRow, readEntries } from '../entry/book-entry.ts'
import { anotherRunStarted, notFound } from '../run/errors.ts'
import type { RunPosition } from '../run/run-search.ts'
import type { Run } from '../run/run.ts'
import { isOver } from '../run/status.ts'
import { queuedRuns, type TransactionSource } from '../run/transaction-source.ts'
import { outlineOf, type ProcessDefinition } from '../step/definition.ts'
import type { TransitionPublisher } from '../worker/transition-publisher.ts'
import { resultOf, TAKE_BACK, TakeBackData, takeBackId } from './take-back-process.ts'

export interface TakeBackDeps {
  readonly source: Pick<TransactionSource, 'get' | 'queue' | 'records' | 'runsOf' | 'search'>
  readonly publisher: Pick<TransitionPublisher, 'publishSteps'>
  readonly process: ProcessDefinition
  /** Loads the process `TakeBack`, which most installations never need, on this replica. */
  readonly load: () => Promise<void>
}

export type TakeBack = ReturnType<typeof createTakeBack>

const PAGE = 500
/** The runs of a transaction that are looked at. A transaction with more is rejected, rather than taken back in part. */
const MAX_REPLAYS = 1_000

export function createTakeBack({ source, publisher, process, load }: TakeBackDeps) {
  async function createdBy(name: string, transaction: string): Promise<readonly EntryRow[]> {
    const created: EntryRow[] = []
    let after: EntryPosition | undefined
    do {
      const filter = { process: name, transaction }
      const page = await readEntries(source, filter, { after, limit: PAGE })
      created.push(...page.filter(({ Operation }) => Operation === 'create'))
      const last = page.length < PAGE ? undefined : page.at(-1)
      after = last && [last.RecordedAt, last.EntryID]
    } while (after !== undefined)
    return created
  }
  return {
    load,
    /**
     * Queues the runs that take back what all runs of a transaction have created, newest first. If one of these runs is
     * active or in doubt, the objects are only listed as left.
     *
     * @throws {IntegrationError} `transaction_not_undoable` if nothing was created, or the transaction has too many runs;
     *   an error with status 409 also if a later run than that of `target` exists.
     */
    async begin(operation: Operation, of: string, target: OperationTarget): Promise<void> {
      const { TransactionID, ReplayID } = target
      const runs = await source.runsOf(of, [TransactionID], { limit: MAX_REPLAYS })
      const [latest] = runs
      if (latest === undefined) throw notFound(of, TransactionID, null)
      if (ReplayID !== null && ReplayID !== latest.ReplayID)
        throw anotherRunStarted(latest.ReplayID)
      if (runs.length === MAX_REPLAYS)
        throw new IntegrationError('transaction_not_undoable', 'the transaction has too many runs')
      const Left = runs.some(({ InDoubt }) => InDoubt)
        ? ('run_in_doubt' as const)
        : runs.some(({ Status }) => !isOver(Status))
          ? ('run_active' as const)
          : undefined
      const { Realms } = operation.Request
      const created = (await createdBy(of, TransactionID)).filter(({ Realm }) =>
        isCovered(Realm, Realms),
      )
      if (created.length === 0)
        throw new IntegrationError(
          'transaction_not_undoable',
          'the runs of the transaction have created no object',
        )
      await load()
      const by = { keyId: operation.KeyID, person: operation.Person }
      const transactions = created.map(({ Realm, Entity, EntityID, RecordedAt }) => ({
        TransactionID: takeBackId(operation, { realm: Realm, entity: Entity, id: EntityID }),
        Realm,
        InitialData: {
          Operation: operation.ID,
          Entity,
          EntityID,
          CreatedAt: RecordedAt,
          DryRun: operation.DryRun,
          ...(Left !== undefined && { Left }),
        } satisfies TakeBackData,
      }))
      for (let at = 0; at < transactions.length; at += PAGE) {
        const page = transactions.slice(at, at + PAGE)
        publisher.publishSteps(queuedRuns(await source.queue(outlineOf(process), page, by)))
      }
    },
    /** Returns a page of the objects of an operation, and what has become of them. */
    async objects(
      operation: string,
      { after, limit }: { readonly after: RunPosition | null; readonly limit: number },
    ): Promise<{ items: TakenObject[]; next: RunPosition | null }> {
      const { runs, next } = await source.search({
        process: TAKE_BACK,
        filter: { idPrefix: `${operation}/` },
        order: 'created',
        visible: { realms: ['*'], processes: [TAKE_BACK] },
        after,
        limit,
      })
      return { items: await Promise.all(runs.map(objectOf)), next }
    },
  }

  async function objectOf(run: Pick<Run, 'TransactionID' | 'Realm'>): Promise<TakenObject> {
    const { TransactionID } = run
    const found = await source.get(TAKE_BACK, TransactionID, null, { attempts: 0 })
    const data = TakeBackData.safeParse(found?.run.InitialData)
    const object = {
      TransactionID,
      Realm: run.Realm ?? '',
      Entity: data.data?.Entity ?? '',
      EntityID: data.data?.EntityID ?? '',
    }
    const ended = { ...object, Reason: null, Fields: null }
    if (found !== null && !isOver(found.run.Status))
      return { ...ended, Outcome: 'pending', Reason: found.run.WaitingFor }
    const result = found && resultOf(found)
    if (result === null)
      return { ...ended, Outcome: 'failed', Reason: found?.run.ErrorClass ?? null }
    if ('Left' in result)
      return { ...ended, Outcome: 'left', Reason: result.Left, Fields: result.Fields ?? null }
    return { ...ended, Outcome: result.Action === 'delete' ? 'deleted' : 'inactivated' }
  }
}
