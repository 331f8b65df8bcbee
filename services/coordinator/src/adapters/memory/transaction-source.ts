/**
 * Transactions in memory, persisted to `ITSourceMemory.json` and its journal in the data folder: the source of
 * the embedded host. One process uses it at a time.
 *
 * A change is applied in memory at once, and a method resolves when the change is flushed to disk. If it cannot
 * be flushed, it is undone, together with every later change that is not flushed either.
 */
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { lockFolder } from '@integration-host/shared/files/folder-lock'
import { IntegrationError } from '@integration-host/shared/errors'
import { z } from 'zod'
import { notFound, stillActive } from '../../transaction/errors.ts'
import { isFinished } from '../../transaction/item.ts'
import { keyText, type Run, runKey } from '../../transaction/run.ts'
import { isOver } from '../../transaction/status.ts'
import {
  LEASE_MS,
  type Lease,
  type PagePosition,
  type QueueResult,
  SWEEP_MS,
  type TransactionSource,
} from '../../transaction/transaction-source.ts'
import * as transitions from '../../transaction/transitions.ts'
import type { StoredRun, Times } from '../../transaction/transitions.ts'
import { auditRuns } from './audit.ts'
import { damaged, type JournalOptions, openJournal, readJournal } from './journal.ts'

interface State {
  readonly runs: readonly StoredRun[]
  readonly paused: readonly string[]
}

/** One durable change: a run as it is now, or the paused processes as they are now. */
type Entry = { readonly run: StoredRun } | { readonly paused: readonly string[] }

export interface MemorySourceOptions {
  readonly now?: () => number
  readonly sweepMs?: number
  readonly leaseMs?: number
  readonly openFile?: JournalOptions['openFile']
}

// Enough to recognise a snapshot of ours. The rest needs no check: this code has written it.
const StateSchema = z.object({
  runs: z.array(z.looseObject({ header: z.looseObject({ Process: z.string() }) })),
  paused: z.array(z.string()),
})

/**
 * Opens the store in `dataDir`, or creates it.
 *
 * @throws {StartupError} if another process uses the folder, or if a file is damaged. The file is not changed.
 */
export async function createMemoryTransactionSource(
  dataDir: string,
  options: MemorySourceOptions = {},
): Promise<TransactionSource> {
  const { now = Date.now, sweepMs = SWEEP_MS, leaseMs = LEASE_MS } = options
  const path = join(dataDir, 'ITSourceMemory.json')
  const journalPath = join(dataDir, 'ITSourceMemory.journal')
  const unlock = await lockFolder(dataDir, path)

  const runs = new Map<string, StoredRun>()
  /** The replay ids of each transaction, so that its latest run is found without a search. */
  const replays = new Map<string, number[]>()
  /** The keys of the runs that are not over, so that polling does not slow down as finished runs accumulate. */
  const active = new Set<string>()
  let paused: ReadonlySet<string> = new Set()
  /** Undoes the changes that are not flushed yet, oldest first. */
  let undo: (() => void)[] = []
  /** Resolves when every change so far is flushed. */
  let flushed: Promise<unknown> = Promise.resolve()

  const transactionText = (process: string, transactionId: string) =>
    JSON.stringify([process, transactionId])
  const put = (stored: StoredRun): void => {
    const key = keyText(stored.header)
    if (!runs.has(key)) {
      const transaction = transactionText(stored.header.Process, stored.header.TransactionID)
      replays.set(transaction, [...(replays.get(transaction) ?? []), stored.header.ReplayID])
    }
    runs.set(key, stored)
    if (isOver(stored.header.Status)) active.delete(key)
    else active.add(key)
  }
  const remove = ({ header }: StoredRun): void => {
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

  const activeRuns = (): StoredRun[] =>
    [...active].map((key) => runs.get(key)).filter((stored) => stored !== undefined)

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
    for (const stored of activeRuns()) put(transitions.afterRestart(stored))
    journal = await openJournal(
      {
        snapshotPath: path,
        journalPath,
        openFile: options.openFile,
        state: (): State => ({ runs: [...runs.values()], paused: [...paused] }),
        onFailure: () => {
          for (const undoOne of undo.toReversed()) undoOne()
          undo = []
        },
      },
      loaded,
    )
  } catch (error) {
    unlock()
    throw error
  }

  /** Applies the changes and resolves when they are durable. */
  async function commit(...entries: readonly Entry[]): Promise<void> {
    if (entries.length === 0) return
    const undos = entries.map((entry) => {
      const before = 'run' in entry ? runs.get(keyText(entry.run.header)) : undefined
      const pausedBefore = paused
      apply(entry)
      return () => {
        if (!('run' in entry)) paused = pausedBefore
        else if (before === undefined) remove(entry.run)
        else put(before)
      }
    })
    undo.push(...undos)
    try {
      const appended = Promise.all(entries.map((entry) => journal.append(entry)))
      flushed = appended
      await appended
      undo = undo.filter((undoOne) => !undos.includes(undoOne))
    } catch (error) {
      throw unwritable(error)
    }
  }
  const unwritable = (cause: unknown): IntegrationError =>
    new IntegrationError('store_unavailable', 'the data folder cannot be written now', {
      cause,
      retryAfterSeconds: 2,
    })

  const times = (): Times => ({ now: now(), sweepMs, leaseMs })
  const latestId = (process: string, transactionId: string): number =>
    Math.max(-1, ...(replays.get(transactionText(process, transactionId)) ?? []))
  const find = (
    process: string,
    transactionId: string,
    replayId: number | null,
  ): StoredRun | undefined =>
    runs.get(
      keyText({
        Process: process,
        TransactionID: transactionId,
        ReplayID: replayId ?? latestId(process, transactionId),
      }),
    )
  const findOrThrow = (
    process: string,
    transactionId: string,
    replayId: number | null,
  ): StoredRun => {
    const stored = find(process, transactionId, replayId)
    if (stored === undefined) throw notFound()
    return stored
  }
  async function commitRun(run: StoredRun): Promise<Run> {
    await commit({ run })
    return run.header
  }
  async function commitRuns(changed: readonly StoredRun[]): Promise<Run[]> {
    await commit(...changed.map((run) => ({ run })))
    return changed.map(({ header }) => header)
  }

  return {
    async queue(process, transactions) {
      const added: StoredRun[] = []
      const results = transactions.map((transaction): QueueResult => {
        const { TransactionID, InitialData, Realm = null } = transaction
        const key = { Process: process.name, TransactionID, ReplayID: 0 }
        const known = runs.get(keyText(key))
        if (known !== undefined)
          return isDeepStrictEqual(known.header.InitialData, InitialData) &&
            known.header.Realm === Realm
            ? { outcome: 'exists', run: known.header }
            : { outcome: 'conflict' }
        const run = transitions.queued(key, process.steps[0], { InitialData, Realm }, times())
        put(run) // so that a second transaction of the same id in this call finds it
        added.push(run)
        return { outcome: 'queued', run: run.header }
      })
      for (const run of added) remove(run)
      await commitRuns(added)
      // A run that existed already may not be flushed yet.
      await flushed.catch((error: unknown) => {
        throw unwritable(error)
      })
      return results
    },

    async claim(request) {
      const stored = runs.get(keyText(request))
      if (stored === undefined) return { kind: 'unknown' }
      const result = transitions.claimed(stored, request, times())
      if (result.kind !== 'claimed') return result
      const { header: run, items, lease } = result.stored
      await commitRun(result.stored)
      return {
        kind: 'claimed',
        claim: {
          lease: {
            ...runKey(request),
            step: request.step,
            owner: request.owner,
            version: run.Version,
            attempt: run.Attempt,
            startedAt: lease?.startedAt ?? run.UpdatedAt,
          },
          run,
          items: items.filter(isFinished),
        },
      }
    },

    async record(lease, transition) {
      const stored = runs.get(keyText(lease))
      if (stored === undefined) return null
      const run = transitions.recorded(stored, lease, transition, times())
      return run === null ? null : commitRun(run)
    },

    async renew(leases) {
      const lost: Lease[] = []
      for (const lease of leases) {
        const stored = runs.get(keyText(lease))
        const run = stored === undefined ? null : transitions.renewed(stored, lease, times())
        if (run === null) lost.push(lease)
        // Not flushed: after a crash every lease is void anyway.
        else put(run)
      }
      return lost
    },

    async due(steps, limit) {
      const at = times()
      const picked = activeRuns()
        .filter(
          (stored) =>
            transitions.isOverdue(stored, at.now) &&
            steps.some((step) => transitions.isAtStep(stored.header, step)),
        )
        .toSorted((a, b) => a.nextSweepAt - b.nextSweepAt)
        .slice(0, limit)
      // Not flushed either: the spacing may start again with the process.
      for (const stored of picked) put(transitions.swept(stored, at))
      return picked.map(({ header }) => header)
    },

    async recoverExpiredLeases(limit) {
      const recovered = activeRuns()
        .map((stored) => transitions.recovered(stored, times()))
        .filter((stored) => stored !== null)
      return commitRuns(recovered.slice(0, limit))
    },

    async runsAtUnknownStep(processes, limit) {
      return activeRuns()
        .filter(
          (stored) =>
            transitions.isOverdue(stored, now()) &&
            stored.header.StepName !== '' &&
            processes.some(
              ({ name, steps }) =>
                name === stored.header.Process && !steps.includes(stored.header.StepName),
            ),
        )
        .slice(0, limit)
        .map(({ header }) => header)
    },

    async failRun(key, version, errorClass, error) {
      const stored = runs.get(keyText(key))
      if (stored === undefined) return null
      const run = transitions.failed(stored, { version, errorClass, error }, times())
      return run === null ? null : commitRun(run)
    },

    async get(process, transactionId, replayId) {
      const stored = find(process, transactionId, replayId)
      return stored === undefined
        ? null
        : { run: stored.header, items: stored.items, attempts: stored.attempts }
    },

    async list(process, { status, since, after, limit }) {
      const sinceMs = since === undefined ? null : Date.parse(since)
      const found = [...runs.values()]
        .map(({ header }) => header)
        .filter(
          (run) =>
            run.Process === process &&
            (status === undefined || run.Status === status) &&
            (sinceMs === null || Date.parse(run.UpdatedAt) >= sinceMs) &&
            (after === undefined || comparePositions(positionOf(run), after) < 0),
        )
        .toSorted((a, b) => comparePositions(positionOf(b), positionOf(a)))
      const page = found.slice(0, limit)
      const last = page.at(-1)
      return {
        runs: page,
        next: found.length > limit && last !== undefined ? positionOf(last) : null,
      }
    },

    async replay(process, transactionId, fromStep) {
      const latest = findOrThrow(process.name, transactionId, null)
      const ids = replays.get(transactionText(process.name, transactionId)) ?? []
      const running = ids.find((id) => active.has(keyText({ ...latest.header, ReplayID: id })))
      if (running !== undefined) throw stillActive(running)
      return commitRun(transitions.replayed(latest, process, fromStep, times()))
    },
    resume: async (process, transactionId, replayId) =>
      commitRun(transitions.resumed(findOrThrow(process, transactionId, replayId), times())),
    cancel: async (process, transactionId, replayId) =>
      commitRun(transitions.cancelled(findOrThrow(process, transactionId, replayId), times())),
    wake: async (credential, limit) =>
      commitRuns(
        activeRuns()
          .filter(({ header }) => header.Status === 'Waiting' && header.WaitingFor === credential)
          .slice(0, limit)
          .map((stored) => transitions.woken(stored, times())),
      ),

    paused: async () => paused,
    async setPaused(process, isPaused) {
      const names = new Set(paused)
      if (isPaused) names.add(process)
      else names.delete(process)
      await commit({ paused: [...names] })
    },

    audit: async (processes) => auditRuns([...runs.values()], processes, paused, now()),

    // No other process can insert here.
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
