/** Queueing transactions in the memory source. */
import { type Action, type Actor, entryOf } from '../../run/action.ts'
import {
  type DebouncedTransaction,
  isDebounced,
  planDebounced,
  type WaitingRun,
} from '../../run/debounce.ts'
import {
  DELAYED_RUNS_PER_KEY,
  idsOfShare,
  queueUnlimited,
  startingNow,
  startsLater,
} from '../../run/start-time.ts'
import { isFinished, type Round } from '../../run/item.ts'
import { isRepeated, runKey, storedTags } from '../../run/run.ts'
import type {
  Claim,
  ClaimRequest,
  NewTransaction,
  ProcessOutline,
  QueueResult,
  StartOnArrival,
  TransactionSource,
} from '../../run/transaction-source.ts'
import { claimed, queued, type StoredRun, type Times } from '../../run/transitions.ts'
import type { Entry, MemoryStore } from './store.ts'

const shareOf = (transaction: NewTransaction, { now }: Times, by: Actor | undefined) =>
  by?.shareOf && startsLater(transaction, now) ? { delayedBy: by.shareOf } : {}

interface Queued {
  /** One result per transaction, in the order of the transactions. */
  readonly results: readonly QueueResult[]
  readonly entries: readonly Entry[]
}

export function createMemoryQueue(
  { table, log, commit, flush }: Pick<MemoryStore, 'table' | 'log' | 'commit' | 'flush'>,
  times: () => Times,
): TransactionSource['queue'] {
  const queuePlain = (
    process: ProcessOutline,
    transactions: readonly NewTransaction[],
    at: Times,
    by: Actor | undefined,
    start: StartOnArrival | undefined,
  ): Queued => {
    const starting = startingNow(transactions, start)
    const added = new Map<StoredRun, Action | null>()
    const results = transactions.map((transaction): QueueResult => {
      const { TransactionID, InitialData, Realm = null, Reason: reason = null } = transaction
      const { ConcurrencyKey = null, NotBefore: notBefore, Priority = 'normal' } = transaction
      const Tags = storedTags(transaction)
      const key = { Process: process.name, TransactionID, ReplayID: 0 }
      const known = table.get(key)
      if (known !== undefined)
        return {
          outcome: isRepeated(known.header, transaction) ? 'exists' : 'conflict',
          run: known.header,
        }
      const data = { ...process, InitialData, Realm, Tags, Priority, ConcurrencyKey, notBefore }
      const [step] = process.steps
      const queuedRun = { ...queued(key, step, data, at), ...shareOf(transaction, at, by) }
      const request = { ...key, step, isFirst: true, version: 0, owner: start?.owner ?? '' }
      const result = starting.has(transaction) ? claimed(queuedRun, request, at) : null
      const run = result?.kind === 'claimed' ? result.stored : queuedRun
      table.put(run) // a second transaction with the same id in this call is then detected
      const action = () => log.next(entryOf('queue', { by: by as Actor, reason }, queuedRun.header))
      added.set(run, by === undefined ? null : action())
      return {
        outcome: 'queued',
        run: queuedRun.header,
        ...(run !== queuedRun && { claim: claimOf(run, request) }),
      }
    })
    // The new runs are removed from the table here, and the commit adds them again. This lets a failed commit undo the
    // addition.
    for (const run of added.keys()) table.remove(run)
    const entries = [...added].map(([run, action]): Entry =>
      action === null ? { run } : { run, action },
    )
    return { results, entries }
  }

  const queueDebounced = (
    process: ProcessOutline,
    transactions: readonly DebouncedTransaction[],
    at: Times,
    by: Actor | undefined,
  ): Queued => {
    const { name: Process } = process
    const knownRun = (id: string) =>
      (table.get({ Process, TransactionID: id, ReplayID: 0 }) ?? table.absorberOf(Process, id))
        ?.header
    const waitingRun = (key: string): WaitingRun | undefined => {
      const stored = table.debounced(key)
      return stored && { run: stored.header, until: stored.absorbsUntil ?? 0 }
    }
    const plan = planDebounced(process, transactions, { knownRun, waitingRun }, at.now)
    const absorbed = Map.groupBy(plan.absorbed, ({ by: absorber }) => absorber)
    const entries = [...plan.added.values(), ...plan.changed.values()].map(
      ({ run, until }): Entry => ({
        run: {
          items: [],
          attempts: [],
          lease: null,
          ...table.get(run),
          header: run,
          nextSweepAt: Date.parse(run.NextAttemptAt ?? '') + at.sweepMs,
          sweepCount: 0,
          absorbsUntil: until,
          ...(by?.shareOf && !table.get(run) && { delayedBy: by.shareOf }),
        },
        absorbed: (absorbed.get(run.TransactionID) ?? []).map(
          ({ transaction }) => transaction.TransactionID,
        ),
      }),
    )
    const actions = plan.outcomes.flatMap(({ outcome, run, reason = null }): Entry[] => {
      if (by === undefined || (outcome !== 'queued' && outcome !== 'absorbed')) return []
      const stored = outcome === 'absorbed' ? outcome : 'done'
      return [{ action: log.next(entryOf('queue', { by, reason }, run, stored)) }]
    })
    return { results: plan.outcomes, entries: [...entries, ...actions] }
  }

  /** Returns those of the ids for which the key has no place left. The queued run itself names its key. */
  const limitedOf = (
    Process: string,
    ids: readonly string[],
    { now }: Times,
    by: Actor | undefined,
  ): ReadonlySet<string> => {
    if (ids.length === 0) return new Set()
    const waits = ({ delayedBy, header: { Status, NotBefore } }: StoredRun) =>
      delayedBy === by?.shareOf && Status === 'Queued' && Date.parse(NotBefore ?? '') > now
    const added = [...new Set(ids)].filter(
      (TransactionID) =>
        table.get({ Process, TransactionID, ReplayID: 0 }) === undefined &&
        table.absorberOf(Process, TransactionID) === undefined,
    )
    const free = Math.max(0, DELAYED_RUNS_PER_KEY - table.active().filter(waits).length)
    return new Set(added.slice(free))
  }

  return (process, all, by, start) => {
    const at = times()
    const limited = limitedOf(process.name, idsOfShare(all, by, at.now), at, by)
    // The runs are added to the table before another call can count the places.
    return queueUnlimited(all, limited, async (transactions) => {
      const plain = transactions.filter((transaction) => !isDebounced(transaction))
      const debounced = transactions.filter(isDebounced)
      const first = queuePlain(process, plain, at, by, start)
      const isCommitted = commit(...first.entries)
      const second = queueDebounced(process, debounced, at, by)
      await Promise.all([isCommitted, commit(...second.entries)])
      // The method waits for the flush even if no run was added, because an existing run that it returns may not be
      // flushed yet.
      await flush()
      const results = new Map([
        ...plain.map((transaction, n) => [transaction, first.results[n]] as const),
        ...debounced.map((transaction, n) => [transaction, second.results[n]] as const),
      ])
      // Each transaction is either in `plain` or in `debounced`, so each of them has a result.
      return transactions.map((transaction) => results.get(transaction) as QueueResult)
    })
  }
}

/** Returns the claim of a run that this request has just claimed. */
export function claimOf({ header: run, items, lease }: StoredRun, request: ClaimRequest): Claim {
  const { State: state = null, Round: number } =
    items.find((item) => item.StepName === request.step && !isFinished(item)) ?? {}
  const round = number === undefined ? undefined : { number, state: state as Round['state'] }
  return {
    lease: {
      ...runKey(request),
      step: request.step,
      owner: request.owner,
      version: run.Version,
      attempt: run.Attempt,
      ...(run.Priority !== 'normal' && { priority: run.Priority }),
      ...(round !== undefined && { round: round.number }),
      startedAt: lease?.startedAt ?? run.UpdatedAt,
    },
    run,
    items: items.filter(isFinished),
    ...(round !== undefined && { round }),
  }
}
