/**
 * The transaction source of the embedded host. It keeps transactions in memory and persists them to
 * `ITSourceMemory.json` and a journal in the data folder. Only one OS process at a time may use the folder.
 *
 * A method applies its change in memory at once and resolves when the change is flushed to disk. If the flush
 * fails, the change is undone together with every later change that is not flushed.
 */
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { lockFolder } from '@integration-host/shared/files/folder-lock'
import { WEBHOOK_STEP } from '@integration-host/shared/contracts/webhook'
import { IntegrationError } from '@integration-host/shared/errors'
import { z } from 'zod'
import {
  type Act,
  type Action,
  type ActionKind,
  entryOf,
  requireVersion,
} from '../../transaction/action.ts'
import { anotherRunStarted, notFound, stillActive } from '../../transaction/errors.ts'
import { isFinished } from '../../transaction/item.ts'
import { type Run, runKey } from '../../transaction/run.ts'
import {
  type AnnouncedRun,
  LEASE_MS,
  type Lease,
  type NewWebhook,
  type QueueResult,
  SWEEP_MS,
  type TransactionSource,
} from '../../transaction/transaction-source.ts'
import * as transitions from '../../transaction/transitions.ts'
import type { StoredRun, Times } from '../../transaction/transitions.ts'
import { auditRuns } from './audit.ts'
import { createActionLog } from './action-log.ts'
import { createRunTable, listRuns } from './run-table.ts'
import { createWebhookQueue, type StoredWebhook, webhookRunKey } from './webhook-queue.ts'
import { damaged, type JournalOptions, openJournal, readJournal } from './journal.ts'

interface State {
  readonly runs: readonly StoredRun[]
  readonly paused: readonly string[]
  /** Missing in a snapshot of a version without action log. */
  readonly actions?: readonly Action[]
  /** Missing in a snapshot of a version without webhooks. */
  readonly webhooks?: readonly StoredWebhook[]
}

/**
 * One durable change: the new state of a run with the webhooks of its transition, the new set of paused processes,
 * webhooks of other events, or the id of a webhook whose run is over; with its entry in the action log. A rejected
 * action leaves the set of paused processes as it is.
 */
type Entry = { readonly action?: Action } & (
  | { readonly run: StoredRun; readonly webhooks?: readonly StoredWebhook[] }
  | { readonly paused: readonly string[] }
  | { readonly webhooks: readonly StoredWebhook[] }
  | { readonly delivered: string }
)

export interface MemorySourceOptions {
  readonly now?: () => number
  readonly sweepMs?: number
  readonly leaseMs?: number
  readonly openFile?: JournalOptions['openFile']
}

// This schema checks only what is needed to recognise a snapshot. The rest of the file was written by this code
// and needs no check.
const StateSchema = z.object({
  runs: z.array(z.looseObject({ header: z.looseObject({ Process: z.string() }) })),
  paused: z.array(z.string()),
  actions: z.array(z.unknown()).optional(),
})

/**
 * Opens the store in `dataDir`, or creates it.
 *
 * @throws {StartupError} if another OS process uses the folder, or if a file is damaged. A damaged file is not changed.
 */
export async function createMemoryTransactionSource(
  dataDir: string,
  options: MemorySourceOptions = {},
): Promise<TransactionSource> {
  const { now = Date.now, sweepMs = SWEEP_MS, leaseMs = LEASE_MS } = options
  const path = join(dataDir, 'ITSourceMemory.json')
  const journalPath = join(dataDir, 'ITSourceMemory.journal')
  const unlock = await lockFolder(dataDir, path)

  const table = createRunTable()
  const log = createActionLog()
  const webhooks = createWebhookQueue(table)
  let webhooksOf: (run: AnnouncedRun) => readonly NewWebhook[] = () => []
  let paused: ReadonlySet<string> = new Set()
  /** For each change that is not flushed yet, oldest first, the function that undoes it. */
  let undo: (() => void)[] = []
  /** Resolves when every change so far is flushed. */
  let flushed: Promise<unknown> = Promise.resolve()

  const apply = (entry: Entry): void => {
    if ('run' in entry) table.put(entry.run)
    if ('paused' in entry) paused = new Set(entry.paused)
    if ('webhooks' in entry) webhooks.add(entry.webhooks ?? [])
    if ('delivered' in entry) webhooks.remove(entry.delivered)
    if (entry.action !== undefined) log.add(entry.action)
  }

  let journal: Awaited<ReturnType<typeof openJournal>>
  try {
    const loaded = readJournal(path, journalPath)
    if (loaded.state !== null) {
      const state = StateSchema.safeParse(loaded.state)
      if (!state.success) throw damaged(path)
      for (const run of (loaded.state as State).runs) table.put(run)
      paused = new Set(state.data.paused)
      for (const action of (loaded.state as State).actions ?? []) log.add(action)
      webhooks.add((loaded.state as State).webhooks ?? [])
    }
    for (const entry of loaded.entries) apply(entry as Entry)
    for (const stored of table.active()) table.put(transitions.afterRestart(stored))
    journal = await openJournal(
      {
        snapshotPath: path,
        journalPath,
        openFile: options.openFile,
        state: (): State => ({
          runs: table.all(),
          paused: [...paused],
          actions: log.all(),
          webhooks: webhooks.all(),
        }),
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
      const before = 'run' in entry ? table.get(entry.run.header) : undefined
      const pausedBefore = paused
      const added = 'webhooks' in entry ? (entry.webhooks ?? []) : []
      const removed = 'delivered' in entry ? webhooks.get(entry.delivered) : undefined
      apply(entry)
      return () => {
        if (entry.action !== undefined) log.remove(entry.action)
        if ('paused' in entry) paused = pausedBefore
        if ('run' in entry && before === undefined) table.remove(entry.run)
        if (before !== undefined) table.put(before)
        for (const { TransactionID } of added) webhooks.remove(TransactionID)
        if (removed !== undefined) webhooks.restore(removed)
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
  const findOrThrow = (
    process: string,
    transactionId: string,
    replayId: number | null,
    act: Act,
  ): StoredRun => {
    const stored = table.find(process, transactionId, replayId)
    if (stored === undefined) throw notFound()
    requireVersion(stored.header, act)
    return stored
  }
  async function commitRun(run: StoredRun, action?: Action): Promise<Run> {
    await commit({ ...withWebhooks(run), ...(action !== undefined && { action }) })
    return run.header
  }
  /** Commits a run that an action has changed, together with the entry of the action. */
  const commitAction = (kind: ActionKind, run: StoredRun, act: Act): Promise<Run> =>
    commitRun(run, log.next(entryOf(kind, act, run.header, { now: now() })))
  async function commitRuns(changed: readonly StoredRun[]): Promise<Run[]> {
    await commit(...changed.map(withWebhooks))
    return changed.map(({ header }) => header)
  }
  const withWebhooks = (run: StoredRun): Entry => {
    const added = newWebhooks(webhooksOf(run.header), run.header)
    return added.length === 0 ? { run } : { run, webhooks: added }
  }
  /** Returns the webhooks that are not known yet; they belong to the realm and the time of `event` by default. */
  const newWebhooks = (
    list: readonly NewWebhook[],
    event: Pick<Run, 'Realm' | 'UpdatedAt'> | null = null,
  ): StoredWebhook[] =>
    list
      .filter((webhook) => webhooks.isNew(webhook))
      .map((webhook) => ({
        Realm: event?.Realm ?? '',
        At: event?.UpdatedAt ?? new Date(now()).toISOString(),
        ...webhook,
      }))

  return {
    async queue(process, transactions, by) {
      const added: StoredRun[] = []
      const actions = new Map<StoredRun, Action>()
      const results = transactions.map((transaction): QueueResult => {
        const { TransactionID, InitialData, Realm = null, Reason: reason = null } = transaction
        const key = { Process: process.name, TransactionID, ReplayID: 0 }
        const known = table.get(key)
        if (known !== undefined)
          return isDeepStrictEqual(known.header.InitialData, InitialData) &&
            known.header.Realm === Realm
            ? { outcome: 'exists', run: known.header }
            : { outcome: 'conflict' }
        const run = transitions.queued(key, process.steps[0], { InitialData, Realm }, times())
        table.put(run) // so that a second transaction of the same id in this call is recognised
        added.push(run)
        if (by !== undefined)
          actions.set(run, log.next(entryOf('queue', { by, reason }, run.header, { now: now() })))
        return { outcome: 'queued', run: run.header }
      })
      // The added runs are removed here because `commitRuns` adds them again and records how to undo the addition.
      for (const run of added) table.remove(run)
      await commit(
        ...added.map((run): Entry => {
          const action = actions.get(run)
          return action === undefined ? { run } : { run, action }
        }),
      )
      // An existing run may not be flushed yet, so the method waits for the flush even if no run was added.
      await flushed.catch((error: unknown) => {
        throw unwritable(error)
      })
      return results
    },

    async claim(request) {
      const stored = table.get(request)
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
      const stored = table.get(lease)
      if (stored === undefined) return null
      const run = transitions.recorded(stored, lease, transition, times())
      return run === null ? null : commitRun(run)
    },

    async renew(leases) {
      const lost: Lease[] = []
      for (const lease of leases) {
        const stored = table.get(lease)
        const run = stored === undefined ? null : transitions.renewed(stored, lease, times())
        if (run === null) lost.push(lease)
        // The renewal of a lease is not written to the journal, because after a crash every lease is void anyway.
        else table.put(run)
      }
      return lost
    },

    async due(steps, limit) {
      const at = times()
      const picked = table
        .active()
        .filter(
          (stored) =>
            transitions.isOverdue(stored, at.now) &&
            steps.some((step) => transitions.isAtStep(stored.header, step)),
        )
        .toSorted((a, b) => a.nextSweepAt - b.nextSweepAt)
        .slice(0, limit)
      // A sweep is not written to the journal, because after a restart the intervals between sweeps may start again.
      for (const stored of picked) table.put(transitions.swept(stored, at))
      return picked.map(({ header }) => header)
    },

    async recoverExpiredLeases(limit) {
      const recovered = table
        .active()
        .map((stored) => transitions.recovered(stored, times()))
        .filter((stored) => stored !== null)
      return commitRuns(recovered.slice(0, limit))
    },

    async runsAtUnknownStep(processes, limit) {
      return table
        .active()
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
      const stored = table.get(key)
      if (stored === undefined) return null
      const run = transitions.failed(stored, { version, errorClass, error }, times())
      return run === null ? null : commitRun(run)
    },

    async get(process, transactionId, replayId) {
      const stored = table.find(process, transactionId, replayId)
      return stored === undefined
        ? null
        : { run: stored.header, items: stored.items, attempts: stored.attempts }
    },

    list: async (process, filter) => listRuns(table.all(), process, filter),

    async replay(process, transactionId, { fromStep, latest: expected }, act) {
      const latest = findOrThrow(process.name, transactionId, null, act)
      const { ReplayID } = latest.header
      if (expected !== null && expected !== ReplayID) throw anotherRunStarted(ReplayID)
      const running = table.activeRunOf(process.name, transactionId)
      if (running !== undefined) throw stillActive(running.header.ReplayID)
      return commitAction('replay', transitions.replayed(latest, process, fromStep, times()), act)
    },
    async resume(process, transactionId, replayId, act) {
      const stored = findOrThrow(process, transactionId, replayId, act)
      return commitAction('resume', transitions.resumed(stored, times()), act)
    },
    async cancel(process, transactionId, replayId, act) {
      const stored = findOrThrow(process, transactionId, replayId, act)
      return commitAction('cancel', transitions.cancelled(stored, times()), act)
    },
    wake: async (credential, limit) =>
      commitRuns(
        table
          .active()
          .filter(({ header }) => header.Status === 'Waiting' && header.WaitingFor === credential)
          .slice(0, limit)
          .map((stored) => transitions.woken(stored, times())),
      ),

    paused: async () => paused,
    async setPaused(process, isPaused, act) {
      const names = new Set(paused)
      if (isPaused) names.add(process)
      else names.delete(process)
      const what = { Process: process }
      const action = log.next(entryOf(isPaused ? 'pause' : 'resume', act, what, { now: now() }))
      await commit({ paused: [...names], action })
    },

    async recordRejected({ kind, act, Outcome: outcome, ...what }) {
      const { Process, TransactionID } = what
      const stored = TransactionID === null ? undefined : table.find(Process, TransactionID, null)
      const Realm = stored?.header.Realm ?? null
      const action = log.next(entryOf(kind, act, { ...what, Realm }, { now: now(), outcome }))
      await commit({ paused: [...paused], action })
    },
    actions: async (filter) => log.list(filter),

    audit: async (processes) => auditRuns(table.all(), processes, paused, now()),

    announce(announced) {
      webhooksOf = announced
    },
    async addWebhooks(list) {
      const added = newWebhooks(list)
      if (added.length > 0) await commit({ webhooks: added })
    },
    async startWebhooks(limit) {
      const { over, next } = webhooks.oldest()
      const started = next.slice(0, limit).map(({ TransactionID, InitialData, Realm, At }) => {
        const data = {
          InitialData: { ...InitialData, At } as Run['InitialData'],
          Realm: Realm || null,
        }
        return transitions.queued(webhookRunKey(TransactionID), WEBHOOK_STEP, data, times())
      })
      await commit(
        ...over.map(({ TransactionID }) => ({ delivered: TransactionID })),
        ...started.map((run) => ({ run })),
      )
      return { runs: started.map(({ header }) => header), hasMore: next.length > limit }
    },
    webhookBacklog: async () => webhooks.backlog(now()),

    // No other program can insert runs into memory, so there are no insertions to report.
    watch() {},

    async [Symbol.asyncDispose]() {
      await journal.close()
      unlock()
    },
  }
}
