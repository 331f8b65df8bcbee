/**
 * The rules for debounced transactions: a waiting run absorbs later requests with the same key, process and realm. Both
 * sources call these functions while they hold the locks of the keys and of the waiting runs.
 */
import { type Debounce, maxSecondsOf } from '@integration-host/shared/contracts/transaction'
import { isRepeated, type Run, runKey, storedTags } from './run.ts'
import type { NewTransaction, ProcessOutline, QueueResult } from './transaction-source.ts'
import { queued } from './transitions.ts'

export type DebouncedTransaction = NewTransaction & { readonly Debounce: Debounce }

export const isDebounced = (transaction: NewTransaction): transaction is DebouncedTransaction =>
  transaction.Debounce !== undefined

/** The run that was queued last with a debounce key, and the time (epoch ms) until which the run absorbs requests. */
export interface WaitingRun {
  readonly run: Run
  readonly until: number
}

/** Looks up the stored runs by the ids and by the debounce keys of the transactions. */
export interface DebounceState {
  /** Returns run 0 of the transaction, or the run that has absorbed the transaction. */
  readonly knownRun: (transactionId: string) => Run | undefined
  /** @param key the text that {@link debounceKeyText} returns */
  readonly waitingRun: (key: string) => WaitingRun | undefined
}

export interface DebouncePlan {
  /** One result per transaction, in the order of the transactions, with the final state of its run. */
  readonly outcomes: readonly (QueueResult & { readonly reason: string | undefined })[]
  /** The final state of the new runs, by `TransactionID`. */
  readonly added: ReadonlyMap<string, WaitingRun>
  /** The final state of the existing runs that absorb a transaction, by `TransactionID`. */
  readonly changed: ReadonlyMap<string, WaitingRun>
  readonly absorbed: readonly {
    readonly transaction: DebouncedTransaction
    /** The `TransactionID` of the run that absorbs the transaction. */
    readonly by: string
  }[]
}

/**
 * Returns a debounce key together with its process and realm as one text. Two requests have an equal text only if the
 * same run may absorb both requests.
 */
export const debounceKeyText = (
  process: string,
  realm: string | null | undefined,
  key: string | null,
): string => JSON.stringify([process, realm ?? '', key])

/**
 * Whether the run still waits for its start, so that it can absorb a request. This is the case as long as `Version` is
 * 0, because every claim, cancellation and operator action adds 1 to `Version`.
 */
const canAbsorb = ({ run, until }: WaitingRun, now: number): boolean =>
  run.Status === 'Queued' && run.Version === 0 && now < until

const iso = (at: number): string => new Date(at).toISOString()

function newRun(
  process: ProcessOutline,
  transaction: DebouncedTransaction,
  now: number,
): WaitingRun {
  const { TransactionID, InitialData, Realm = null, ConcurrencyKey = null, Debounce } = transaction
  const { Priority = 'normal' } = transaction
  const { header } = queued(
    { Process: process.name, TransactionID, ReplayID: 0 },
    process.steps[0],
    {
      ...process,
      InitialData,
      Realm,
      Tags: storedTags(transaction),
      Priority,
      ConcurrencyKey,
      notBefore: iso(now + Debounce.Seconds * 1_000),
      debounceKey: Debounce.Key,
    },
    { now, sweepMs: 0, leaseMs: 0 },
  )
  return { run: header, until: now + maxSecondsOf(Debounce) * 1_000 }
}

/**
 * Returns the waiting run with the data of a later request. The start never moves to an earlier time and `Version`
 * stays the same, because the step message is already published for the earlier start and can only be delayed further.
 */
function absorb(
  { run, until }: WaitingRun,
  transaction: DebouncedTransaction,
  now: number,
): WaitingRun {
  const { InitialData, initialDataFor, ConcurrencyKey = null, Debounce } = transaction
  const { Priority = run.Priority } = transaction
  const before = Date.parse(run.NextAttemptAt ?? '')
  const start = Math.max(before, Math.min(now + Debounce.Seconds * 1_000, until))
  const changed = {
    ...run,
    InitialData: initialDataFor === undefined ? InitialData : initialDataFor(runKey(run)),
    ConcurrencyKey,
    Priority,
    NotBefore: iso(start),
    NextAttemptAt: iso(start),
    DeadlineAt: run.DeadlineAt && iso(Date.parse(run.DeadlineAt) + start - before),
    Absorbed: run.Absorbed + 1,
    UpdatedAt: iso(now),
  }
  return { run: changed, until }
}

/**
 * Decides for each transaction whether it is new, known, or absorbed by a waiting run. The transactions are processed
 * in their order.
 */
export function planDebounced(
  process: ProcessOutline,
  transactions: readonly DebouncedTransaction[],
  { knownRun, waitingRun }: DebounceState,
  now: number,
): DebouncePlan {
  const added = new Map<string, WaitingRun>()
  const changed = new Map<string, WaitingRun>()
  const absorbed: DebouncePlan['absorbed'][number][] = []
  const ownerOf = new Map<string, string>()
  const newest = new Map<string, string>()
  const current = (id: string): WaitingRun | undefined => added.get(id) ?? changed.get(id)
  const decided = transactions.map((transaction): QueueResult => {
    const { TransactionID, Realm, Debounce } = transaction
    const owner = ownerOf.get(TransactionID)
    const stored = owner === undefined ? knownRun(TransactionID) : current(owner)?.run
    const known = stored && (current(stored.TransactionID)?.run ?? stored)
    if (known !== undefined)
      return { outcome: isRepeated(known, transaction) ? 'exists' : 'conflict', run: known }
    const key = debounceKeyText(process.name, Realm, Debounce.Key)
    const id = newest.get(key)
    const found = id === undefined ? waitingRun(key) : current(id)
    const waiting = found && (current(found.run.TransactionID) ?? found)
    if (waiting === undefined || !canAbsorb(waiting, now)) {
      const run = newRun(process, transaction, now)
      added.set(TransactionID, run)
      ownerOf.set(TransactionID, TransactionID)
      newest.set(key, TransactionID)
      return { outcome: 'queued', run: run.run }
    }
    const by = waiting.run.TransactionID
    const next = absorb(waiting, transaction, now)
    if (added.has(by)) added.set(by, next)
    else changed.set(by, next)
    absorbed.push({ transaction, by })
    ownerOf.set(TransactionID, by)
    newest.set(key, by)
    return { outcome: 'absorbed', run: next.run }
  })
  const outcomes = decided.map(({ outcome, run }, index) => ({
    outcome,
    reason: transactions[index]?.Reason,
    run: current(run.TransactionID)?.run ?? run,
  }))
  return { outcomes, added, changed, absorbed }
}
