/**
 * The transaction source of the embedded host. It keeps transactions in memory; `store.ts` persists them. A method
 * applies its change in memory at once and resolves when the change is durable.
 */
import {
  type Act,
  type Action,
  type ActionKind,
  entryOf,
  requireFirstAct,
  requireVersion,
} from '../../run/action.ts'
import {
  anotherRunStarted,
  notFound,
  parentActive,
  purged,
  requireLatest,
  stillActive,
} from '../../run/errors.ts'
import { signalled, waitSettled } from '../../run/events.ts'
import type { OperatorAction } from '../../run/operator-actions.ts'
import { pausesOf, PROCESSES, type ProcessRow } from '../../run/pause.ts'
import type { Run } from '../../run/run.ts'
import {
  type ClaimRequest,
  type ClaimResult,
  LEASE_MS,
  type Lease,
  type RunTerms,
  SWEEP_MS,
  type TransactionSource,
  type UnkeyedRun,
  type WebhooksOf,
} from '../../run/transaction-source.ts'
import { isOver, isWaitingAtPlace, isWaitingForEventOrChange } from '../../run/status.ts'
import { parked, withSlot } from '../../run/slot-transitions.ts'
import { isWaitingForSlot } from '../../run/slots.ts'
import * as transitions from '../../run/transitions.ts'
import type { StoredRun, Times } from '../../run/transitions.ts'
import { auditRuns } from './audit.ts'
import { createMemoryErasures, createMemoryRetention } from './retention.ts'
import { createMemoryExports, runReader, searchRuns } from './read-runs.ts'
import { copiedFamilies, createMemoryFamilies, resumedFamilies } from './families.ts'
import type { JournalOptions } from './journal.ts'
import { claimOf, createMemoryQueue } from './queue-runs.ts'
import { createMemoryPayloads } from './payloads.ts'
import { createMemoryEntries, recordedEntries } from './entries.ts'
import { memoryRecords, type RecordChange } from './records.ts'
import { createMemorySlots, mayHaveSlot, slotKeyOf } from './slots.ts'
import { type Entry, openMemoryStore } from './store.ts'
import { createMemoryTargetCalls } from './target-calls.ts'
import { createMemoryWebhooks } from './webhooks.ts'

/** The transition of each operator action. */
const operated: Readonly<
  Record<OperatorAction, (stored: StoredRun, times: Times, terms: RunTerms) => StoredRun>
> = {
  cancel: transitions.cancelled,
  resume: transitions.resumed,
  retry: transitions.retried,
  undo: transitions.undone,
}

export interface MemorySourceOptions {
  readonly now?: () => number
  readonly sweepMs?: number
  readonly leaseMs?: number
  readonly openFile?: JournalOptions['openFile']
  readonly webhooksOf?: WebhooksOf | undefined
}

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
  const store = await openMemoryStore(dataDir, options.openFile, now)
  const { table, log, commit } = store

  const times = (): Times => ({ now: now(), sweepMs, leaseMs })
  const { members: webhooks, webhooksAfter } = createMemoryWebhooks(
    store,
    times,
    options.webhooksOf,
  )
  const findOrThrow = (
    process: string,
    transactionId: string,
    replayId: number | null,
    act: Act,
  ): StoredRun => {
    const stored = table.find(process, transactionId, replayId)
    if (stored === undefined) throw notFound(process, transactionId, replayId)
    if (stored.header.PurgedAt !== null) throw purged()
    requireVersion(stored.header, act)
    if (act.operation !== undefined) {
      const latest = { Process: process, TransactionID: transactionId }
      requireFirstAct(stored.header, act.operation, log.doneBy(act.operation.id, latest))
    }
    return stored
  }
  const latestReplayId = ({ header }: StoredRun): number =>
    table.find(header.Process, header.TransactionID, null)?.header.ReplayID ?? header.ReplayID
  async function commitRun(
    run: StoredRun,
    { records = [], ...and }: { readonly action?: Action; readonly records?: RecordChange[] } = {},
  ): Promise<Run> {
    const all = [...webhooksAfter(run), ...records]
    await commit({ run, ...and, ...(all.length > 0 && { records: all }) })
    return run.header
  }
  /** Commits a run that an action has changed, together with the entry of the action. */
  const commitAction = (
    kind: ActionKind,
    run: StoredRun,
    act: Act,
    { outcome = 'done', ...and }: { outcome?: string; records?: RecordChange[] } = {},
  ): Promise<Run> => {
    const action = log.next(entryOf(kind, act, run.header, outcome))
    return commitRun(run, { action, ...and })
  }
  async function commitRuns(changed: readonly StoredRun[]): Promise<Run[]> {
    await commit(...changed.map(withWebhooks))
    return changed.map(({ header }) => header)
  }
  const withWebhooks = (run: StoredRun): Entry => {
    const records = webhooksAfter(run)
    return records.length === 0 ? { run } : { run, records }
  }

  /** Returns whether the run may be claimed; `key` is `null` if its process has no limit. */
  const slotOf = (
    stored: StoredRun,
    { slot }: ClaimRequest,
  ):
    | { readonly kind: 'available'; readonly key: string | null }
    | { readonly kind: 'taken'; readonly key: string }
    | UnkeyedRun => {
    // A run that is being undone needs no slot.
    if (slot === undefined || stored.header.Status === 'Undoing')
      return { kind: 'available', key: null }
    const { InitialData: initialData, Realm: realm, Version: version } = stored.header
    const key = slotKeyOf(stored.header, slot)
    if (key === null)
      return { kind: 'unkeyed', initialData, version, ...(realm !== null && { realm }) }
    return { kind: mayHaveSlot(table, stored, key, slot) ? 'available' : 'taken', key }
  }
  async function park(
    stored: StoredRun,
    { key }: { readonly key: string },
    { step }: ClaimRequest,
  ): Promise<ClaimResult> {
    // The run has a lease, so lease recovery must first record the attempt of the lost worker.
    if (stored.lease !== null) return { kind: 'stale' }
    const run = parked(stored, { key, step }, times())
    if (isWaitingForSlot(stored.header)) {
      table.put(run)
      return { kind: 'stale' }
    }
    return { kind: 'no_slot', run: await commitRun(run) }
  }

  return {
    queue: createMemoryQueue(store, times),

    async claim(request) {
      const stored = table.get(request)
      if (stored === undefined) return { kind: 'unknown' }
      const result = transitions.claimed(stored, request, times())
      if (result.kind !== 'claimed') return result
      const slot = slotOf(stored, request)
      if (slot.kind !== 'available')
        return slot.kind === 'taken' ? park(stored, slot, request) : slot
      const claimed = slot.key === null ? result.stored : withSlot(result.stored, slot.key)
      await commitRun(claimed)
      return { kind: 'claimed', claim: claimOf(claimed, request) }
    },

    async record(lease, transition) {
      const stored = table.get(lease)
      if (stored === undefined) return null
      const run = transitions.recorded(stored, lease, transition, times())
      if (run === null) return null
      const records = recordedEntries(
        store.records,
        lease,
        transition.entries ?? [],
        new Date(now()).toISOString(),
      )
      // The result lacks `InitialData` and some other members, because the caller already has them in its claim, where
      // `InitialData` is decrypted.
      const {
        InitialData: _data,
        Realm: _realm,
        CreatedAt: _at,
        ...moved
      } = await commitRun(run, { records })
      const { DefinitionVersion: _version, DeadlineAt: _deadline, ...state } = moved
      return state
    },

    async renew(leases) {
      const lost: Lease[] = []
      for (const lease of leases) {
        const stored = table.get(lease)
        const run = stored === undefined ? null : transitions.renewed(stored, lease, times())
        if (run === null) lost.push(lease)
        // A renewed lease is not written to the journal, because a restart ends every lease.
        else table.put(run)
      }
      return lost
    },

    async due(steps, limit) {
      const at = times()
      const picked = table
        .overdue(at.now)
        .filter(
          (stored) =>
            !transitions.isLostAgain(stored) &&
            !isWaitingAtPlace(stored.header) &&
            steps.some((step) => transitions.isAtStep(stored.header, step)),
        )
        .toSorted((a, b) => a.nextSweepAt - b.nextSweepAt)
        .slice(0, limit)
      // The time of a sweep is not written to the journal, because the intervals may start again after a restart.
      for (const stored of picked) table.put(transitions.swept(stored, at))
      return picked.map(({ header }) => header)
    },

    async recoverExpiredLeases(limit) {
      const at = times()
      const recovered = table
        .overdue(at.now)
        .map((stored) => transitions.recovered(stored, at))
        .filter((stored) => stored !== null)
      return commitRuns(recovered.slice(0, limit))
    },

    async runsAtUnknownStep(processes, limit) {
      return table
        .overdue(now())
        .filter(
          (stored) =>
            stored.header.StepName !== '' &&
            processes.some(
              ({ name, steps }) =>
                name === stored.header.Process && !steps.includes(stored.header.StepName),
            ),
        )
        .slice(0, limit)
        .map(({ header }) => header)
    },

    async failRun(key, version, errorClass, error, undoAt) {
      const stored = table.get(key)
      if (stored === undefined) return null
      const run = transitions.failed(stored, { version, errorClass, error, undoAt }, times())
      return run === null ? null : commitRun(run)
    },

    async failPastDeadline(limit, undone = []) {
      const at = times()
      const failed = table
        .active()
        .map((stored) => transitions.pastDeadline(stored, undone, at))
        .filter((stored) => stored !== null)
      return commitRuns(failed.slice(0, limit))
    },

    ...runReader(store),

    search: async (request) => searchRuns(table.all(), request),
    async storedProcesses(isCounted = () => false) {
      const unfinished = Map.groupBy(table.active(), ({ header }) => header.Process)
      const names = new Set(table.all().map(({ header }) => header.Process))
      const countOf = (name: string): number => unfinished.get(name)?.length ?? 0
      return new Map(Array.from(names, (name) => [name, isCounted(name) ? countOf(name) : null]))
    },

    async replay(process, transactionId, request, act) {
      const latest = findOrThrow(process.name, transactionId, null, act)
      const { ReplayID } = latest.header
      if (request.latest !== null && request.latest !== ReplayID) throw anotherRunStarted(ReplayID)
      const running = table.activeRunOf(process.name, transactionId)
      if (running !== undefined) throw stillActive(running.header.ReplayID)
      const { Parent } = latest.header
      const parent = Parent === undefined ? undefined : table.get(Parent)
      if (parent !== undefined && !isOver(parent.header.Status)) throw parentActive()
      const run = transitions.replayed(latest, process, request, times())
      const places = run.items.map(({ StepName }) => StepName)
      const copied = copiedFamilies(store, latest.header, places, run.header.ReplayID)
      return commitAction('replay', run, act, { records: copied })
    },
    async operate(action, process, transactionId, replayId, act) {
      const stored = findOrThrow(process.name, transactionId, replayId, act)
      if (action === 'resume' || action === 'undo')
        requireLatest(stored.header, latestReplayId(stored), action)
      const run = operated[action](stored, times(), process)
      // The children that have failed until now are resumed when the run gets to their place.
      const records = action === 'resume' ? resumedFamilies(store, stored.header, now()) : []
      return commitAction(action, run, act, { records })
    },
    async settle(process, transactionId, replayId, settlement, act) {
      const stored = findOrThrow(process.name, transactionId, replayId, act)
      const isLatest = latestReplayId(stored) === stored.header.ReplayID
      const run = transitions.settled(stored, process, settlement, isLatest, times())
      return commitAction('settle', run, act, { outcome: settlement.outcome })
    },
    async signal(place, transactionId, replayId, event, act) {
      const stored = findOrThrow(place.process, transactionId, replayId, act)
      const received = signalled(stored, place, event, act, times())
      const { header, items } = received ?? stored
      const item = items.find(({ StepName }) => StepName === place.place) ?? null
      const hasMoved = header.Version !== stored.header.Version
      if (received !== null) {
        const action = log.next(entryOf('signal', act, header))
        await commit({ ...(hasMoved ? withWebhooks(received) : { run: received }), action })
      }
      return { isAccepted: received !== null, hasMoved, run: header, item }
    },
    async settleWaits(places, which) {
      const at = times()
      const chosen =
        'limit' in which
          ? table.overdue(at.now).filter(({ header }) => isWaitingForEventOrChange(header))
          : [table.get(which)].filter((run) => run !== undefined)
      const settled = chosen
        .map((before) => ({ before, after: waitSettled(before, places, at) }))
        .slice(0, 'limit' in which ? which.limit : 1)
      const moved: StoredRun[] = []
      for (const { before, after } of settled) {
        if (after === null) continue
        if (after.header === before.header) table.put(after)
        else moved.push(after)
      }
      return commitRuns(moved)
    },
    wake: async (credential, limit) =>
      commitRuns(
        table
          .active()
          .filter(({ header }) => header.WaitingFor === credential)
          .slice(0, limit)
          .map((stored) => transitions.woken(stored, times())),
      ),

    ...createMemorySlots(table, commitRuns, times),
    ...createMemoryFamilies(store, { commitRuns, withWebhooks, times }),
    ...createMemoryErasures(store, { now, leaseMs }),
    ...createMemoryEntries(store, now),
    ...createMemoryPayloads(store),
    records: (kind) => memoryRecords(store, now, kind),
    compact: () => store.compact(),
    ...createMemoryTargetCalls(now),
    async audit(processes) {
      const rows = store.records.rows(PROCESSES.table).map(([, row]) => row as ProcessRow)
      return auditRuns(table.all(), processes, pausesOf(rows), now())
    },

    ...webhooks,
    ...createMemoryRetention(store, now),
    ...createMemoryExports(table),

    // `watch` never reports insertions, because no other program can insert runs into memory.
    watch() {},

    [Symbol.asyncDispose]: () => store[Symbol.asyncDispose](),
  }
}
