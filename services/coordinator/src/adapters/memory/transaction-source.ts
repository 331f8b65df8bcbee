/**
 * Transactions in memory, persisted to `ITSourceMemory.json` and its journal in the data folder: the
 * embedded host's source. One process at a time; what a method resolved with is on the disk.
 *
 * A change is made in memory at once and acknowledged when it is flushed. If it cannot be flushed, it is
 * taken back, together with every later change that is not flushed either.
 */
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { lockFolder } from '@integration-host/shared/folder-lock'
import { IntegrationError } from '@integration-host/shared/errors'
import { z } from 'zod'
import type { Run, RunKey } from '../../transaction/run.ts'
import { keyText, runKey } from '../../transaction/run.ts'
import { type Attempt, idempotencyKey, isFinished, type Item } from '../../transaction/item.ts'
import { activeStatuses, isOver, isResumable } from '../../transaction/status.ts'
import {
  type Audit,
  type DueRuns,
  LEASE_MS,
  type Lease,
  type PagePosition,
  type QueueResult,
  STUCK_MS,
  SWEEP_CAP_MS,
  SWEEP_MS,
  type TransactionSource,
} from '../../transaction/transaction-source.ts'
import { damaged, type JournalOptions, openJournal, readJournal } from './journal.ts'

/** A run with what only the source needs to know of it. Never changed in place: each change is a new one. */
interface Kept {
  readonly header: Run
  readonly items: readonly Item[]
  readonly attempts: readonly Attempt[]
  readonly lease: {
    readonly owner: string
    readonly until: number
    readonly startedAt: string
  } | null
  readonly nextSweepAt: number
  readonly sweepCount: number
}

interface State {
  readonly runs: readonly Kept[]
  readonly paused: readonly string[]
}

/** One durable change: a run as it is now, or the paused processes as they are now. */
type Entry = { readonly run: Kept } | { readonly paused: readonly string[] }

export interface MemorySourceOptions {
  readonly now?: () => number
  readonly sweepMs?: number
  readonly leaseMs?: number
  readonly openFile?: JournalOptions['openFile']
}

// What makes a snapshot ours; the rest was written by the same code.
const StateSchema = z.object({
  runs: z.array(z.looseObject({ header: z.looseObject({ Process: z.string() }) })),
  paused: z.array(z.string()),
})

/**
 * Opens the store in `dataDir`, or makes it.
 *
 * @throws {StartRefused} when another process uses the folder, or a file is damaged; it is left as it is.
 */
export async function createMemoryTransactionSource(
  dataDir: string,
  options: MemorySourceOptions = {},
): Promise<TransactionSource> {
  const { now = Date.now, sweepMs = SWEEP_MS, leaseMs = LEASE_MS } = options
  const path = join(dataDir, 'ITSourceMemory.json')
  const journalPath = join(dataDir, 'ITSourceMemory.journal')
  const unlock = await lockFolder(dataDir, path)

  const runs = new Map<string, Kept>()
  /** Replay ids of a transaction, so that its latest run needs no search. */
  const replays = new Map<string, number[]>()
  /** Runs that are not over: cost must not grow with history. */
  const active = new Set<string>()
  let paused: ReadonlySet<string> = new Set()
  /** How to take back what is not flushed, oldest first. */
  let undo: (() => void)[] = []
  /** Resolves when everything so far is flushed. */
  let flushed: Promise<unknown> = Promise.resolve()

  const transactionText = (process: string, transactionId: string) =>
    JSON.stringify([process, transactionId])
  const put = (kept: Kept): void => {
    const key = keyText(kept.header)
    if (!runs.has(key)) {
      const transaction = transactionText(kept.header.Process, kept.header.TransactionID)
      replays.set(transaction, [...(replays.get(transaction) ?? []), kept.header.ReplayID])
    }
    runs.set(key, kept)
    if (isOver(kept.header.Status)) active.delete(key)
    else active.add(key)
  }
  const remove = ({ header }: Kept): void => {
    const transaction = transactionText(header.Process, header.TransactionID)
    runs.delete(keyText(header))
    active.delete(keyText(header))
    replays.set(
      transaction,
      (replays.get(transaction) ?? []).filter((id) => id !== header.ReplayID),
    )
  }
  const apply = (entry: Entry): void => {
    if ('run' in entry) put(entry.run)
    else paused = new Set(entry.paused)
  }

  let journal: Awaited<ReturnType<typeof openJournal>>
  try {
    const loaded = readJournal(path, journalPath)
    if (loaded.state !== null) {
      const state = StateSchema.safeParse(loaded.state)
      if (!state.success) throw damaged(path)
      for (const run of (loaded.state as State).runs) put(run)
      paused = new Set(state.data.paused)
    }
    for (const entry of loaded.entries) apply(entry as Entry)
    // Nobody else writes here, so every lease is of a process that is gone, and no message survived it.
    for (const key of active) {
      const kept = runs.get(key)
      if (kept === undefined) continue
      const nextAttemptAt = Date.parse(kept.header.NextAttemptAt ?? '') || 0
      put({
        ...kept,
        ...(kept.lease !== null && { lease: { ...kept.lease, until: 0 } }),
        nextSweepAt: Math.max(0, nextAttemptAt),
        sweepCount: 0,
      })
    }
    journal = await openJournal(
      {
        snapshotPath: path,
        journalPath,
        openFile: options.openFile,
        state: (): State => ({ runs: [...runs.values()], paused: [...paused] }),
        onFailure: () => {
          for (const takeBack of undo.toReversed()) takeBack()
          undo = []
        },
      },
      loaded,
    )
  } catch (error) {
    unlock()
    throw error
  }

  /** Makes the changes and resolves when they are durable. */
  async function commit(...entries: readonly Entry[]): Promise<void> {
    if (entries.length === 0) return
    const takeBacks = entries.map((entry) => {
      const before = 'run' in entry ? runs.get(keyText(entry.run.header)) : undefined
      const pausedBefore = paused
      apply(entry)
      return () => {
        if (!('run' in entry)) paused = pausedBefore
        else if (before === undefined) remove(entry.run)
        else put(before)
      }
    })
    undo.push(...takeBacks)
    try {
      const appended = Promise.all(entries.map((entry) => journal.append(entry)))
      flushed = appended
      await appended
      undo = undo.filter((takeBack) => !takeBacks.includes(takeBack))
    } catch (error) {
      throw unwritable(error)
    }
  }
  const unwritable = (cause: unknown): IntegrationError =>
    new IntegrationError('store_unavailable', 'the data folder cannot be written now', {
      cause,
      retryAfterSeconds: 2,
    })

  const time = (at: number): string => new Date(at).toISOString()
  const isLeased = ({ lease }: Kept): boolean => lease !== null && lease.until > now()
  const held = (lease: Lease): Kept | null => {
    const kept = runs.get(keyText(lease))
    return kept?.lease?.owner === lease.owner && kept.header.Version === lease.version ? kept : null
  }
  /** A run after a transition: the next version, its lease ended. */
  const moved = (kept: Kept, change: Partial<Run>, sweepInMs = sweepMs): Kept => ({
    ...kept,
    header: {
      ...kept.header,
      ...change,
      Version: kept.header.Version + 1,
      InDoubt: change.InDoubt ?? (kept.header.InDoubt || kept.lease !== null),
      UpdatedAt: time(now()),
    },
    lease: null,
    nextSweepAt: now() + sweepInMs,
    sweepCount: 0,
  })
  const dueNow = () => ({
    NextAttemptAt: time(now()),
    LastError: null,
    ErrorClass: null,
    WaitingFor: null,
  })
  const ended = () => ({ NextAttemptAt: null, WaitingFor: null, CompletedAt: time(now()) })
  const inDoubt = ({ header, lease, attempts }: Kept): readonly Attempt[] =>
    lease === null
      ? attempts
      : [
          ...attempts,
          {
            StepName: header.StepName,
            Attempt: header.Attempt,
            Outcome: 'in_doubt',
            ResponseStatus: null,
            Error: null,
            StartedAt: lease.startedAt,
            FinishedAt: null,
          },
        ]
  const activeRuns = (): Kept[] =>
    [...active].map((key) => runs.get(key)).filter((kept) => kept !== undefined)
  const latestId = (process: string, transactionId: string): number =>
    Math.max(-1, ...(replays.get(transactionText(process, transactionId)) ?? []))
  const find = (
    process: string,
    transactionId: string,
    replayId: number | null,
  ): Kept | undefined =>
    runs.get(
      keyText({
        Process: process,
        TransactionID: transactionId,
        ReplayID: replayId ?? latestId(process, transactionId),
      }),
    )
  const findOrThrow = (process: string, transactionId: string, replayId: number | null): Kept => {
    const kept = find(process, transactionId, replayId)
    if (kept === undefined)
      throw new IntegrationError('transaction_not_found', 'there is no such transaction')
    return kept
  }
  const newRun = (
    key: RunKey,
    stepName: string,
    data: Pick<Run, 'InitialData' | 'Realm'>,
  ): Kept => ({
    header: {
      ...runKey(key),
      Status: 'Queued',
      StepName: stepName,
      InitialData: data.InitialData,
      Realm: data.Realm,
      Version: 0,
      Attempt: 0,
      ...dueNow(),
      InDoubt: false,
      CreatedAt: time(now()),
      UpdatedAt: time(now()),
      CompletedAt: null,
    },
    items: [],
    attempts: [],
    lease: null,
    nextSweepAt: now() + sweepMs,
    sweepCount: 0,
  })

  return {
    async queue(process, transactions) {
      const added: Entry[] = []
      const results = transactions.map((transaction): QueueResult => {
        const { TransactionID, InitialData, Realm = null } = transaction
        const key = { Process: process.name, TransactionID, ReplayID: 0 }
        const known = runs.get(keyText(key))
        if (known !== undefined)
          return isDeepStrictEqual(known.header.InitialData, InitialData) &&
            known.header.Realm === Realm
            ? { outcome: 'exists', header: known.header }
            : { outcome: 'conflict' }
        const run = newRun(key, process.steps[0], { InitialData, Realm })
        put(run) // a second one of the same id in this call must find it
        added.push({ run })
        return { outcome: 'queued', header: run.header }
      })
      for (const entry of added) if ('run' in entry) remove(entry.run)
      await commit(...added)
      // What is there already may be on its way to the disk still.
      await flushed.catch((error: unknown) => {
        throw unwritable(error)
      })
      return results
    },

    async claim({ version, step, isFirst, owner, ...key }) {
      const kept = runs.get(keyText(key))
      if (kept === undefined) return { kind: 'unknown' }
      const { header } = kept
      const isNamed = header.StepName === step || (header.StepName === '' && isFirst)
      const isTakeover = header.Version === version + 1 && kept.lease !== null
      if (isOver(header.Status) || isLeased(kept) || !isNamed) return { kind: 'stale' }
      if (header.Version !== version && !isTakeover) return { kind: 'stale' }
      const delayMs = Date.parse(header.NextAttemptAt ?? '') - now()
      if (delayMs > 0)
        return header.Status === 'Waiting' ? { kind: 'stale' } : { kind: 'early', delayMs, version }
      const startedAt = time(now())
      const run: Kept = {
        ...moved(
          kept,
          {
            Status: 'Running',
            StepName: step,
            Attempt: header.Attempt + 1,
            WaitingFor: null,
          },
          leaseMs,
        ),
        attempts: inDoubt(kept),
        lease: { owner, until: now() + leaseMs, startedAt },
      }
      await commit({ run })
      const { header: claimed, items } = run
      const lease = {
        ...runKey(key),
        step,
        owner,
        version: claimed.Version,
        attempt: claimed.Attempt,
        startedAt,
      }
      return {
        kind: 'claimed',
        claim: { lease, header: claimed, items: items.filter(isFinished) },
      }
    },

    async record(lease, transition) {
      const kept = held(lease)
      if (kept === null) return null
      const { item, delayMs, status } = transition
      const startedAt = kept.lease?.startedAt ?? time(now())
      const finished = {
        StepName: lease.step,
        Attempt: kept.header.Attempt,
        ResponseStatus: item?.response?.status ?? null,
        Error: item?.error ?? null,
        StartedAt: startedAt,
        FinishedAt: time(now()),
      }
      const run: Kept = {
        ...moved(
          kept,
          {
            Status: status,
            StepName: transition.stepName,
            Attempt: transition.attempt,
            WaitingFor: transition.waitingFor,
            LastError: transition.lastError,
            ErrorClass: transition.errorClass,
            InDoubt: transition.isInDoubt,
            NextAttemptAt: isOver(status) ? null : time(now() + delayMs),
            CompletedAt: isOver(status) ? time(now()) : null,
          },
          transition.continues === true ? leaseMs : delayMs + sweepMs,
        ),
        ...(transition.continues === true && {
          lease: { owner: lease.owner, until: now() + leaseMs, startedAt: time(now()) },
        }),
        ...(item !== null && {
          items: [
            ...kept.items.filter(({ StepName }) => StepName !== lease.step),
            {
              ...finished,
              Status: item.status,
              IdempotencyKey: idempotencyKey(lease, lease.step),
              ResponseBody: item.response?.body ?? null,
              Data: item.data as Item['Data'],
            },
          ],
          attempts: [
            ...kept.attempts,
            { ...finished, Outcome: transition.errorClass ?? 'completed' },
          ],
        }),
      }
      await commit({ run })
      return run.header
    },

    async renew(leases) {
      const lost: Lease[] = []
      for (const lease of leases) {
        const kept = held(lease)
        if (kept === null) lost.push(lease)
        else {
          // Not flushed: after a crash every lease is void anyway.
          const until = now() + leaseMs
          const startedAt = kept.lease?.startedAt ?? time(now())
          put({ ...kept, lease: { owner: lease.owner, until, startedAt }, nextSweepAt: until })
        }
      }
      return lost
    },

    async due(steps, limit) {
      const picked = activeRuns()
        .filter(
          (kept) =>
            kept.nextSweepAt <= now() &&
            !isLeased(kept) &&
            steps.some(
              ({ process, step, isFirst }) =>
                process === kept.header.Process &&
                (step === kept.header.StepName || (isFirst && kept.header.StepName === '')),
            ),
        )
        .toSorted((a, b) => a.nextSweepAt - b.nextSweepAt)
        .slice(0, limit)
      for (const kept of picked) {
        // Not flushed either: spacing may start anew with the process.
        const spacing = Math.min(SWEEP_CAP_MS, sweepMs * 2 ** Math.min(kept.sweepCount, 20))
        put({ ...kept, nextSweepAt: now() + spacing, sweepCount: kept.sweepCount + 1 })
      }
      return picked.map(({ header }) => header)
    },

    async adopt(limit) {
      const adopted = activeRuns()
        .filter(
          ({ lease, nextSweepAt }) =>
            lease !== null && lease.until <= now() && nextSweepAt <= now(),
        )
        .slice(0, limit)
        .map((kept) => ({ run: { ...moved(kept, {}), attempts: inDoubt(kept) } }))
      await commit(...adopted)
      return adopted.map(({ run }) => run.header)
    },

    async runsAtUnknownStep(processes, limit) {
      return activeRuns()
        .filter(
          (kept) =>
            kept.nextSweepAt <= now() &&
            !isLeased(kept) &&
            kept.header.StepName !== '' &&
            processes.some(
              ({ name, steps }) =>
                name === kept.header.Process && !steps.includes(kept.header.StepName),
            ),
        )
        .slice(0, limit)
        .map(({ header }) => header)
    },

    async refuse(key, version, errorClass, error) {
      const kept = runs.get(keyText(key))
      if (kept?.header.Version !== version || isOver(kept.header.Status) || isLeased(kept))
        return null
      const run = moved(kept, {
        ...ended(),
        Status: 'Failed',
        ErrorClass: errorClass,
        LastError: error,
      })
      await commit({ run })
      return run.header
    },

    async get(process, transactionId, replayId) {
      const kept = find(process, transactionId, replayId)
      return kept === undefined
        ? null
        : { header: kept.header, items: kept.items, attempts: kept.attempts }
    },

    async list(process, { status, since, after, limit }) {
      const sinceMs = since === undefined ? null : Date.parse(since)
      const found = [...runs.values()]
        .map(({ header }) => header)
        .filter(
          (header) =>
            header.Process === process &&
            (status === undefined || header.Status === status) &&
            (sinceMs === null || Date.parse(header.UpdatedAt) >= sinceMs) &&
            (after === undefined || comparePositions(positionOf(header), after) < 0),
        )
        .toSorted((a, b) => comparePositions(positionOf(b), positionOf(a)))
      const headers = found.slice(0, limit)
      const last = headers.at(-1)
      return {
        headers,
        next: found.length > limit && last !== undefined ? positionOf(last) : null,
      }
    },

    async replay(process, transactionId, fromStep) {
      const latest = findOrThrow(process.name, transactionId, null)
      const ids = replays.get(transactionText(process.name, transactionId)) ?? []
      const running = ids.find((id) => active.has(keyText({ ...latest.header, ReplayID: id })))
      if (running !== undefined)
        throw new IntegrationError('transaction_active', `run ${running} is still active`)
      const first = fromStep ?? process.steps[0]
      const key = { ...runKey(latest.header), ReplayID: latest.header.ReplayID + 1 }
      const items = process.steps.slice(0, process.steps.indexOf(first)).map((step): Item => {
        const item = latest.items.find(({ StepName }) => StepName === step)
        if (item === undefined || !isFinished(item))
          throw new IntegrationError(
            'invalid_request',
            'a step before fromStep was never completed',
          )
        return { ...item, Status: 'Copied', Attempt: 0, IdempotencyKey: idempotencyKey(key, step) }
      })
      const run = { ...newRun(key, first, latest.header), items }
      await commit({ run })
      return run.header
    },

    async resume(process, transactionId, replayId) {
      const kept = findOrThrow(process, transactionId, replayId)
      if (!isResumable(kept.header.Status))
        throw new IntegrationError(
          'transaction_not_resumable',
          'only a failed or cancelled run goes on; a completed one can be replayed',
        )
      const run = moved(kept, { ...dueNow(), Status: 'Queued', Attempt: 0, CompletedAt: null })
      await commit({ run })
      return run.header
    },

    async cancel(process, transactionId, replayId) {
      const kept = findOrThrow(process, transactionId, replayId)
      if (isOver(kept.header.Status))
        throw new IntegrationError('transaction_not_active', 'the run is over')
      const run = moved(kept, { ...ended(), Status: 'Cancelled' })
      await commit({ run })
      return run.header
    },

    async wake(credential, limit) {
      const woken = activeRuns()
        .filter(({ header }) => header.Status === 'Waiting' && header.WaitingFor === credential)
        .slice(0, limit)
        .map((kept) => ({ run: moved(kept, { ...dueNow(), Status: 'Running' }) }))
      await commit(...woken)
      return woken.map(({ run }) => run.header)
    },

    paused: async () => paused,
    async setPaused(process, isPaused) {
      const names = new Set(paused)
      if (isPaused) names.add(process)
      else names.delete(process)
      await commit({ paused: [...names] })
    },

    audit: async (processes) => auditOf([...runs.values()], processes, paused, now()),

    // Nobody else can insert here.
    watch() {},

    async [Symbol.asyncDispose]() {
      await journal.close()
      unlock()
    },
  }
}

const positionOf = ({ CreatedAt, TransactionID, ReplayID }: Run): PagePosition => ({
  createdAt: CreatedAt,
  transactionId: TransactionID,
  replayId: ReplayID,
})

function comparePositions(a: PagePosition, b: PagePosition): number {
  if (a.createdAt !== b.createdAt) return a.createdAt < b.createdAt ? -1 : 1
  if (a.transactionId !== b.transactionId) return a.transactionId < b.transactionId ? -1 : 1
  return a.replayId - b.replayId
}

function auditOf(
  runs: readonly Kept[],
  processes: readonly string[],
  paused: ReadonlySet<string>,
  now: number,
): Audit {
  const headers: Partial<Record<Run['Status'], number>> = {}
  const due = new Map<string, DueRuns>()
  const isActive = ({ header }: Kept): boolean =>
    activeStatuses.some((status) => status === header.Status)
  const hasItem = ({ header, items }: Kept): boolean =>
    items.some(({ StepName, Status }) => StepName === header.StepName && Status === 'Completed')
  for (const { header, lease } of runs) {
    headers[header.Status] = (headers[header.Status] ?? 0) + 1
    const isWaiting = ['Queued', 'Running', 'Retrying'].includes(header.Status)
    const dueMs = now - Math.max(Date.parse(header.NextAttemptAt ?? ''), lease?.until ?? 0)
    if (!isWaiting || !(dueMs >= 0)) continue
    const { Process: process, StepName: step } = header
    const key = JSON.stringify([process, step])
    const known = due.get(key) ?? { due: 0, oldestMs: 0 }
    const oldestMs = Math.max(known.oldestMs, dueMs)
    due.set(key, { process, step, due: known.due + 1, oldestMs })
  }
  const count = (test: (run: Kept) => boolean): number => runs.filter(test).length
  return {
    headers,
    dueBySteps: [...due.values()],
    violations: {
      completedWithoutItem: count((run) => run.header.Status === 'Completed' && !hasItem(run)),
      itemAhead: count((run) => isActive(run) && hasItem(run)),
      orphanItems: 0,
      stuck: count(
        (run) =>
          isActive(run) && run.nextSweepAt < now - STUCK_MS && !paused.has(run.header.Process),
      ),
      unknownProcess: count((run) => isActive(run) && !processes.includes(run.header.Process)),
    },
  }
}
