/**
 * The transaction source on PostgreSQL: connects each method of the port to its SQL statement.
 *
 * Each transition is one statement for all runs that are requested at the same time. The statement locks rows in key
 * order, so that the batches of two replicas cannot deadlock. The statement is fenced on `Version`, and other database
 * transactions see either all of its changes or none. If the statement had to wait for a row lock, PostgreSQL checks
 * the condition again under READ COMMITTED (PostgreSQL manual, section 13.2.1). Therefore, of two claims of the same
 * version, exactly one succeeds.
 */
import { batched } from '@integration-host/shared/batching'
import type postgres from 'postgres'
import type { Transition } from '../../run/progress.ts'
import type { Actor } from '../../run/action.ts'
import { isDebounced } from '../../run/debounce.ts'
import type { SignalResult } from '../../run/events.ts'
import type { ClaimedRun, Run } from '../../run/run.ts'
import type { SlotRequest } from '../../run/slots.ts'
import { idsOfShare, queueUnlimited } from '../../run/start-time.ts'
import {
  type AnnouncedRun,
  type ClaimRequest,
  type ClaimResult,
  LEASE_MS,
  type Lease,
  type NewTransaction,
  type NewWebhook,
  type ProcessOutline,
  type QueueResult,
  type RunState,
  type StartOnArrival,
  SWEEP_MS,
  type TransactionSource,
  type WebhooksOf,
} from '../../run/transaction-source.ts'
import type { PostgresConnection } from '@integration-host/postgres/connection'
import { postgresRecords } from './records.ts'
import { auditTables } from './statements/audit.ts'
import { claimRuns, claimWithSlots, renewLeases } from './statements/claim-runs.ts'
import { enqueueRuns, reserveDelayed } from './statements/enqueue-runs.ts'
import { checkEntries, newestEntries } from './statements/entries.ts'
import { enqueueDebounced } from './statements/enqueue-debounced.ts'
import { erasableRuns, eraseRuns } from './statements/erase-runs.ts'
import { settleWaits, type Signal, signalRun, signalWaiting } from './statements/events.ts'
import { exportPage, getRun, listReplays } from './statements/read-runs.ts'
import {
  cancelChildren,
  grantTurns,
  joinFamilies,
  lookAtFamilies,
  readChildren,
  recordChildren,
  recordUndoOfChildren,
} from './statements/families.ts'
import {
  failPastDeadline,
  failRun,
  recoverExpiredLeases,
  runsAtUnknownStep,
  takeDueRuns,
  wakeRuns,
} from './statements/sweep-runs.ts'
import { outdatedPayloads, replacePayloads } from './statements/payloads.ts'
import { operateRun } from './statements/operate-run.ts'
import { storedProcesses } from './statements/process-names.ts'
import { recordOutcomes } from './statements/record-outcomes.ts'
import { replayRun } from './statements/replay-run.ts'
import { forgetRuns, purgeable, purgeRuns } from './statements/retention.ts'
import { searchRuns } from './statements/search-runs.ts'
import { settleRun } from './statements/settle-run.ts'
import { grantSlots } from './statements/slots.ts'
import { coolDownTarget, releaseCalls, reserveCall } from './statements/target-calls.ts'
import { addWebhooks, startWebhooks } from './statements/webhooks.ts'

export interface PostgresSourceOptions {
  /** The time in milliseconds after which the sweeper republishes a run that no worker has claimed. */
  readonly sweepMs?: number
  readonly leaseMs?: number
  readonly webhooksOf?: WebhooksOf | null | undefined
}

/** The isolation level of an audit, with which all its statements see the same rows. */
const AUDIT_MODE = 'isolation level repeatable read read only'
/**
 * The maximum number of debounced transactions in one database transaction, which holds two advisory locks for each of
 * them.
 */
const DEBOUNCE_BATCH = 100
/** The maximum number of events in one database transaction, which locks as many runs. */
const SIGNAL_BATCH = 100
/**
 * The channel on which the trigger `Order_Header_inserted` notifies about inserted rows that are due at once. Only
 * other programs insert such rows: a row that `queue` inserts becomes due for the sweeper later.
 */
const DUE_CHANNEL = 'Order_Header'

export function createPostgresTransactionSource(
  connection: PostgresConnection,
  { sweepMs = SWEEP_MS, leaseMs = LEASE_MS, webhooksOf = null }: PostgresSourceOptions = {},
): TransactionSource {
  const { run } = connection
  const times = { sweepMs, leaseMs }
  /** Queues a batch that contains debounced transactions. */
  const queueMixed = async (
    process: ProcessOutline,
    batch: readonly NewTransaction[],
    by: Actor | undefined,
    start: StartOnArrival | undefined,
  ): Promise<QueueResult[]> => {
    const results = new Map<NewTransaction, QueueResult>()
    const keep = (transactions: readonly NewTransaction[], found: readonly QueueResult[]) => {
      for (const [n, result] of found.entries())
        results.set(transactions[n] as NewTransaction, result)
    }
    const plain = batch.filter((transaction) => !isDebounced(transaction))
    if (plain.length > 0)
      keep(plain, await run((sql) => enqueueRuns(sql, process, plain, times, by, start)))
    const debounced = batch.filter(isDebounced)
    for (let at = 0; at < debounced.length; at += DEBOUNCE_BATCH) {
      const part = debounced.slice(at, at + DEBOUNCE_BATCH)
      keep(part, await run((sql) => enqueueDebounced(sql, process, part, times, by)))
    }
    return batch.map((transaction) => results.get(transaction) as QueueResult)
  }
  const claim = batched<ClaimRequest, ClaimResult>((requests) =>
    run(async (sql) => {
      if (webhooksOf === null) return claimRuns(sql, requests, times)
      // A claim that replaces the lease of a lost worker leaves the step of that worker in doubt, and stores a webhook
      // about the doubt. If the webhook cannot be stored, the claims are undone, because no worker would know of them.
      return sql.begin(async (tx) => {
        const results = await claimRuns(tx, requests, times)
        await addWebhooks(tx, webhooksWithRealm(inDoubtOf(results)))
        return results
      })
    }),
  )
  const claimLimited = batched<ClaimRequest & { readonly slot: SlotRequest }, ClaimResult>(
    (requests) =>
      run((sql) =>
        sql.begin(async (tx) => {
          const results = await claimWithSlots(tx, requests, times)
          await addWebhooks(tx, webhooksWithRealm(inDoubtOf(results)))
          return results
        }),
      ),
  )
  const record = batched<{ lease: Lease; transition: Transition }, RunState | null>((outcomes) =>
    run((sql) => recordOutcomes(sql, outcomes, { ...times, webhooksOf })),
  )
  /** Makes a change and stores the webhooks of the changed runs, in one database transaction. */
  const announcing = <Result extends readonly Run[] | Run | null>(
    change: (tx: postgres.TransactionSql) => Promise<Result>,
  ): Promise<Result> =>
    run((sql) =>
      sql.begin(async (tx) => {
        const changed = await change(tx)
        const runs = [changed ?? []].flat() as readonly Run[]
        await addWebhooks(tx, webhooksWithRealm(runs))
        return changed
      }),
    ) as Promise<Result>
  const signalInBatch = batched<Signal, SignalResult | null>(
    (signals) =>
      run((sql) =>
        sql.begin(async (tx) => {
          const results = await signalWaiting(tx, signals, times)
          await addWebhooks(tx, webhooksWithRealm(results.flatMap((result) => result?.run ?? [])))
          return results
        }),
      ),
    { maxSize: SIGNAL_BATCH },
  )
  const signalAlone = (signal: Signal): Promise<SignalResult> =>
    run((sql) =>
      sql.begin(async (tx) => {
        const result = await signalRun(tx, signal, times)
        if (result.hasMoved) await addWebhooks(tx, webhooksWithRealm([result.run]))
        return result
      }),
    )
  const webhooksWithRealm = (
    runs: readonly (AnnouncedRun & Pick<Run, 'Realm'>)[],
  ): readonly NewWebhook[] =>
    runs.flatMap((changed) =>
      (webhooksOf?.(changed) ?? []).map((webhook) => ({ ...webhook, Realm: changed.Realm })),
    )
  return {
    async queue(process, transactions, by, start) {
      const queue = (batch: readonly NewTransaction[]) =>
        batch.some(isDebounced)
          ? queueMixed(process, batch, by, start)
          : run((sql) => enqueueRuns(sql, process, batch, times, by, start))
      const ids = idsOfShare(transactions, by, Date.now())
      if (!by?.shareOf || ids.length === 0) return queue(transactions)
      const { shareOf } = by
      const limited = await run((sql) =>
        sql.begin((tx) => reserveDelayed(tx, process.name, shareOf, ids)),
      )
      return queueUnlimited(transactions, limited, queue)
    },
    // Claims of processes without a limit need only one statement and no advisory lock.
    claim: (request) =>
      request.slot === undefined
        ? claim(request)
        : claimLimited({ ...request, slot: request.slot }),
    record: (lease, transition) => record({ lease, transition }),
    renew: (leases) => run((sql) => renewLeases(sql, leases, times)),
    due: (steps, limit) => run((sql) => takeDueRuns(sql, steps, limit, times)),
    recoverExpiredLeases: (limit) => announcing((tx) => recoverExpiredLeases(tx, limit, times)),
    runsAtUnknownStep: (processes, limit) => run((sql) => runsAtUnknownStep(sql, processes, limit)),
    grantSlots: (limits, released) => run((sql) => grantSlots(sql, limits, released, times)),
    failRun: (key, version, errorClass, error, undoAt) =>
      announcing((tx) => failRun(tx, key, version, { errorClass, error, undoAt }, times)),
    failPastDeadline: (limit, undone = []) =>
      announcing((tx) => failPastDeadline(tx, limit, undone, times)),
    get: (process, transactionId, replayId, parts) =>
      run((sql) => getRun(sql, process, transactionId, replayId, parts)),
    runsOf: (process, ids, page) => run((sql) => listReplays(sql, process, ids, page)),
    search: (request) => run((sql) => searchRuns(sql, request)),
    storedProcesses: (isCounted) => run((sql) => storedProcesses(sql, isCounted)),
    replay: (process, transactionId, request, act) =>
      run((sql) => sql.begin((tx) => replayRun(tx, process, transactionId, request, act, times))),
    operate: (...what) => announcing((tx) => operateRun(tx, ...what, times)),
    settle: (process, transactionId, replayId, settlement, act) =>
      announcing((tx) => settleRun(tx, process, transactionId, replayId, settlement, act, times)),
    async signal(at, transactionId, replayId, event, act) {
      const request = { at, transactionId, replayId, event, act }
      return (await signalInBatch(request)) ?? signalAlone(request)
    },
    settleWaits: (places, which) => announcing((tx) => settleWaits(tx, places, which, times)),
    recordChildren: (lease, page, choose) =>
      run((sql) => recordChildren(sql, lease, page, choose, { ...times, webhooksOf })),
    recordUndoOfChildren: (lease, choose) =>
      run((sql) => recordUndoOfChildren(sql, lease, choose, { ...times, webhooksOf })),
    lookAtFamilies: (which) => run((sql) => lookAtFamilies(sql, which)),
    takeTurns: (families) => run((sql) => sql.begin((tx) => grantTurns(tx, families, times))),
    cancelChildren: (families, limit) => announcing((tx) => cancelChildren(tx, families, limit)),
    joinFamilies: (joins) => announcing((tx) => joinFamilies(tx, joins, times)),
    children: (key, page) => run((sql) => readChildren(sql, key, page)),
    wake: (credential, limit) => run((sql) => wakeRuns(sql, credential, limit, times)),
    erasable: (scope, page) => run((sql) => erasableRuns(sql, scope, page, times)),
    erase: (runs, act) => run((sql) => sql.begin((tx) => eraseRuns(tx, runs, act))),
    outdatedPayloads: (keyId, page) => run((sql) => outdatedPayloads(sql, keyId, page)),
    replacePayloads: (payloads) => run((sql) => sql.begin((tx) => replacePayloads(tx, payloads))),
    audit: (processes) => run((sql) => sql.begin(AUDIT_MODE, (tx) => auditTables(tx, processes))),
    addWebhooks: (webhooks) => run((sql) => addWebhooks(sql, webhooks)),
    startWebhooks: (limit) => run((sql) => startWebhooks(sql, limit, times)),
    exportPage: (range, after, limit) => run((sql) => exportPage(sql, range, after, limit)),
    purgeable: (policy, after, limit) => run((sql) => purgeable(sql, policy, after, limit)),
    purge: (policy, runs) => run((sql) => purgeRuns(sql, policy, runs)),
    forget: (dedupeMs, limit) => run((sql) => forgetRuns(sql, dedupeMs, limit)),
    newestEntries: async (realm, objects) =>
      objects.length === 0 ? [] : run((sql) => newestEntries(sql, realm, objects)),
    async checkEntries(checks) {
      if (checks.length > 0) await run((sql) => checkEntries(sql, checks))
    },
    records: (kind) => postgresRecords(connection, kind),
    compact: async () => {},
    reserveCall: (request) => run((sql) => reserveCall(sql, request)),
    releaseCalls: (target, slots) => run((sql) => releaseCalls(sql, target, slots)),
    coolDownTarget: (target, ms) => run((sql) => coolDownTarget(sql, target, ms)),
    watch: (onDue) => connection.listen(DUE_CHANNEL, onDue),
    [Symbol.asyncDispose]: () => connection[Symbol.asyncDispose](),
  }
}

const inDoubtOf = (results: readonly ClaimResult[]): readonly ClaimedRun[] =>
  results.flatMap((result) =>
    result.kind === 'claimed' && result.claim.run.InDoubt ? [result.claim.run] : [],
  )
