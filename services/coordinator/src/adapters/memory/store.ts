/**
 * The state of the memory source and its files, `ITSourceMemory.json` and a journal. Only one OS process at a time may
 * use the folder.
 *
 * A change is applied in memory at once, and becomes durable when it is flushed to disk. If the flush fails, the change
 * is undone, together with every later change that was not flushed yet.
 */
import { join } from 'node:path'
import { lockFolder } from '@integration-host/shared/files/folder-lock'
import { IntegrationError } from '@integration-host/shared/errors'
import { z } from 'zod'
import type { Action } from '../../transaction/action.ts'
import type { Operation } from '../../transaction/bulk-operation.ts'
import type { Pause, Pauses } from '../../transaction/pause.ts'
import type { Run, RunKey } from '../../transaction/run.ts'
import * as transitions from '../../transaction/transitions.ts'
import type { StoredRun } from '../../transaction/transitions.ts'
import { type ActionLog, createActionLog } from './action-log.ts'
import {
  createDeadLetterTable,
  type DeadLetterTable,
  type StoredDeadLetter,
} from './dead-letters.ts'
import { damaged, type JournalOptions, openJournal, readJournal } from './journal.ts'
import { createOperationTable, type OperationChange, type OperationTable } from './operations.ts'
import { type Absorbed, createRunTable, type RunTable } from './run-table.ts'
import type { CursorRow } from './change-cursors.ts'
import { createRecordTables, type RecordChange, type RecordTables } from './records.ts'
import { type EarlierSchedule, scheduleChange } from './earlier-schedules.ts'
import { createWebhookQueue, type StoredWebhook, type WebhookQueue } from './webhook-queue.ts'

interface State {
  readonly runs: readonly StoredRun[]
  /** In the files of an earlier version, a pause consists only of the name of the process. */
  readonly paused: readonly (Pause | string)[]
  /** Missing in a snapshot that was written before the action log existed. */
  readonly actions?: readonly Action[]
  /** Missing in a snapshot that was written before webhooks existed. */
  readonly webhooks?: readonly StoredWebhook[]
  /** Missing in a snapshot that was written before the table of dead letters existed. */
  readonly deadLetters?: readonly StoredDeadLetter[]
  readonly lastDeadLetterId?: number
  /** Missing in a snapshot that was written before bulk operations existed. */
  readonly operations?: readonly Operation[]
  /** Missing in a snapshot that was written before debounced transactions existed. */
  readonly absorbed?: readonly Absorbed[]
  /** Missing in a snapshot that was written before retention existed. */
  readonly retention?: RetentionState
  /** The rows of the tables of `Records`. */
  readonly records?: readonly RecordChange[]
  /** The schedules in the files of an earlier version. */
  readonly schedules?: readonly EarlierSchedule[]
  /** Missing in a snapshot that was written before the change feed existed. */
  readonly cursors?: readonly CursorRow[]
  /** The time at which the provider has last delivered an event, epoch ms. */
  readonly deliveredAt?: number | null
}

/** The stored state of the retention. */
export interface RetentionState {
  readonly keepsByDefault: boolean
  /** The time at which the last retention pass was completed, epoch ms. */
  readonly passedAt: number | null
  /**
   * The number of runs that the current retention pass has purged and the number that it has forgotten (deleted), by
   * process.
   */
  readonly counts: Readonly<Record<'purge' | 'forget', Readonly<Record<string, number>>>>
}

/**
 * One durable change of the state, with the entry of the action log if an action made the change. Each member of the
 * union is one kind of change. A change with only `action` is a rejected action.
 *
 * An entry with `run` can also have `webhooks`, which report the transition of the run, and `absorbed`, the ids of the
 * transactions that the run absorbs. In an entry without `run`, `webhooks` report other events. `delivered` is the id
 * of a webhook whose run has ended. `deliveredAt` is the time at which the provider has delivered an event. `forgotten`
 * names a deleted run, and `forgottenOperation` names a deleted bulk operation.
 */
export type Entry = { readonly action?: Action; readonly retention?: RetentionState } & (
  | { readonly action: Action }
  | {
      readonly run: StoredRun
      readonly webhooks?: readonly StoredWebhook[]
      readonly absorbed?: readonly string[]
    }
  | { readonly forgotten: RunKey }
  | { readonly retention: RetentionState }
  | { readonly paused: readonly (Pause | string)[] }
  | { readonly webhooks: readonly StoredWebhook[] }
  | { readonly delivered: string }
  | { readonly deadLetter: StoredDeadLetter }
  | { readonly removedDeadLetters: readonly number[] }
  | { readonly operation: OperationChange }
  | { readonly forgottenOperation: string }
  | { readonly record: RecordChange }
  | { readonly schedule: EarlierSchedule }
  | { readonly cursor: CursorRow }
  | { readonly removedCursor: string }
  | { readonly deliveredAt: number }
)

// This schema checks only what is needed to recognise a snapshot. The rest of the file needs no check, because this
// code has written it.
const StateSchema = z.object({
  runs: z.array(z.looseObject({ header: z.looseObject({ Process: z.string() }) })),
  paused: z.array(z.unknown()),
  actions: z.array(z.unknown()).optional(),
})

/** Defaults for the members that runs lack in the files of an earlier version. */
const LATER_MEMBERS: Partial<Run> = {
  Tags: null,
  ConcurrencyKey: null,
  InputChanged: false,
  ErasedAt: null,
  PurgedAt: null,
  DefinitionVersion: null,
  DeadlineAt: null,
  NotBefore: null,
  DebounceKey: null,
  Absorbed: 0,
}
const withAllMembers = (stored: StoredRun): StoredRun => ({
  ...stored,
  header: { ...LATER_MEMBERS, ...stored.header },
})

const pausesOf = (stored: State['paused']): Pauses =>
  new Map(
    stored.map((pause) =>
      typeof pause === 'string'
        ? [pause, { Process: pause, PausedAt: null, PausedBy: null, Reason: null }]
        : [pause.Process, pause],
    ),
  )

export interface MemoryStore extends AsyncDisposable {
  readonly table: RunTable
  readonly log: ActionLog
  readonly webhooks: WebhookQueue
  readonly deadLetters: DeadLetterTable
  readonly operations: OperationTable
  readonly records: RecordTables
  /** The cursors of the change feeds, by realm. */
  readonly cursors: ReadonlyMap<string, CursorRow>
  readonly deliveredAt: () => number | null
  readonly paused: () => Pauses
  readonly retention: () => RetentionState
  /**
   * Applies the changes and resolves when they are durable.
   *
   * @throws {IntegrationError} `store_unavailable` if the changes cannot be written. They are then undone.
   */
  readonly commit: (...entries: readonly Entry[]) => Promise<void>
  /** Resolves when every change so far is durable. @throws the same errors as `commit` */
  flush(): Promise<void>
  /** Removes earlier states of runs from the files. @throws the same errors as `commit` */
  compact(): Promise<void>
}

/**
 * Opens the files in `dataDir`, or creates them.
 *
 * @throws {StartupError} if another OS process uses the folder, or if a file is damaged. A damaged file is not changed.
 */
export async function openMemoryStore(
  dataDir: string,
  openFile: JournalOptions['openFile'],
  now: () => number,
): Promise<MemoryStore> {
  const path = join(dataDir, 'ITSourceMemory.json')
  const journalPath = join(dataDir, 'ITSourceMemory.journal')
  const unlock = await lockFolder(dataDir, path)

  const table = createRunTable()
  const log = createActionLog()
  const webhooks = createWebhookQueue(table)
  const deadLetters = createDeadLetterTable()
  const operations = createOperationTable()
  const records = createRecordTables()
  const cursors = new Map<string, CursorRow>()
  let deliveredAt: number | null = null
  let paused: Pauses = new Map()
  let retention: RetentionState
  /** The functions that undo the changes that are not flushed yet, one for each change, oldest first. */
  let undo: (() => void)[] = []
  /** Resolves when every change so far is flushed. */
  let flushed: Promise<unknown> = Promise.resolve()

  const apply = (entry: Entry): void => {
    if ('run' in entry) {
      table.put(entry.run)
      table.addAbsorbed(entry.run.header, entry.absorbed ?? [])
    }
    if ('paused' in entry) paused = pausesOf(entry.paused)
    if ('forgotten' in entry) {
      const forgotten = table.get(entry.forgotten)
      if (forgotten !== undefined) table.remove(forgotten)
    }
    if (entry.retention !== undefined) retention = entry.retention
    if ('webhooks' in entry) webhooks.add(entry.webhooks ?? [])
    if ('delivered' in entry) webhooks.remove(entry.delivered)
    if ('deadLetter' in entry) deadLetters.add([entry.deadLetter])
    if ('removedDeadLetters' in entry) deadLetters.remove(entry.removedDeadLetters)
    if ('operation' in entry) operations.put(entry.operation)
    if ('forgottenOperation' in entry) operations.remove(entry.forgottenOperation)
    if ('record' in entry) records.apply(entry.record)
    if ('schedule' in entry) records.apply(scheduleChange(entry.schedule))
    if ('cursor' in entry) cursors.set(entry.cursor.realm, entry.cursor)
    if ('removedCursor' in entry) cursors.delete(entry.removedCursor)
    if ('deliveredAt' in entry) deliveredAt = entry.deliveredAt
    if (entry.action !== undefined) log.add(entry.action)
  }

  let journal: Awaited<ReturnType<typeof openJournal>>
  try {
    const loaded = readJournal(path, journalPath)
    if (loaded.state !== null) {
      const state = StateSchema.safeParse(loaded.state)
      if (!state.success) throw damaged(path)
      for (const run of (loaded.state as State).runs) table.put(withAllMembers(run))
      for (const { run, ids } of (loaded.state as State).absorbed ?? []) table.addAbsorbed(run, ids)
      paused = pausesOf((loaded.state as State).paused)
      for (const action of (loaded.state as State).actions ?? []) log.add(action)
      webhooks.add((loaded.state as State).webhooks ?? [])
      deadLetters.add(
        (loaded.state as State).deadLetters ?? [],
        (loaded.state as State).lastDeadLetterId,
      )
      for (const operation of (loaded.state as State).operations ?? []) operations.put(operation)
      for (const schedule of (loaded.state as State).schedules ?? [])
        records.apply(scheduleChange(schedule))
      for (const record of (loaded.state as State).records ?? []) records.apply(record)
      for (const cursor of (loaded.state as State).cursors ?? []) cursors.set(cursor.realm, cursor)
      deliveredAt = (loaded.state as State).deliveredAt ?? null
    }
    const known = (loaded.state as State | null)?.retention
    retention = known ?? {
      keepsByDefault: table.all().length > 0 || loaded.entries.length > 0,
      passedAt: null,
      counts: { purge: {}, forget: {} },
    }
    for (const entry of loaded.entries as Entry[])
      apply('run' in entry ? { ...entry, run: withAllMembers(entry.run) } : entry)
    for (const stored of table.active()) table.put(transitions.afterRestart(stored, now()))
    journal = await openJournal(
      {
        snapshotPath: path,
        journalPath,
        openFile,
        state: (): State => ({
          runs: table.all(),
          paused: [...paused.values()],
          actions: log.all(),
          webhooks: webhooks.all(),
          deadLetters: deadLetters.all(),
          lastDeadLetterId: deadLetters.lastId,
          operations: operations.all(),
          records: records.all(),
          absorbed: table.allAbsorbed(),
          cursors: [...cursors.values()],
          deliveredAt,
          retention,
        }),
        onFailure: () => {
          for (const undoOne of undo.toReversed()) undoOne()
          undo = []
        },
      },
      loaded,
    )
    // Files of an earlier version contain no retention state. The default state depends on whether there are runs, so
    // it is written before more runs are queued.
    if (loaded.state !== null && known === undefined) await journal.compact()
  } catch (error) {
    unlock()
    throw error
  }

  /** Applies the changes and resolves when they are durable. */
  async function commit(...entries: readonly Entry[]): Promise<void> {
    if (entries.length === 0) return
    const undos = entries.map((entry) => {
      const key = 'run' in entry ? entry.run.header : 'forgotten' in entry ? entry.forgotten : null
      const before = key === null ? undefined : table.get(key)
      const absorbedBefore = 'forgotten' in entry ? table.absorbedBy(entry.forgotten) : []
      const retentionBefore = retention
      const pausedBefore = paused
      const added = 'webhooks' in entry ? (entry.webhooks ?? []) : []
      const removed = 'delivered' in entry ? webhooks.get(entry.delivered) : undefined
      const removedLetters =
        'removedDeadLetters' in entry ? deadLetters.pick(entry.removedDeadLetters) : []
      const operationId =
        'operation' in entry
          ? entry.operation.ID
          : 'forgottenOperation' in entry
            ? entry.forgottenOperation
            : ''
      const recordBefore =
        'record' in entry ? records.get(entry.record.table, entry.record.key) : null
      const operationBefore = operations.get(operationId)
      const cursorRealm =
        'cursor' in entry ? entry.cursor.realm : 'removedCursor' in entry ? entry.removedCursor : ''
      const cursorBefore = cursors.get(cursorRealm)
      const deliveredBefore = deliveredAt
      apply(entry)
      return () => {
        if (entry.action !== undefined) log.remove(entry.action)
        if ('paused' in entry) paused = pausedBefore
        retention = retentionBefore
        if ('run' in entry) table.removeAbsorbed(entry.run.header, entry.absorbed ?? [])
        if ('run' in entry && before === undefined) table.remove(entry.run)
        if (before !== undefined) table.put(before)
        if (key !== null) table.addAbsorbed(key, absorbedBefore)
        for (const { TransactionID } of added) webhooks.remove(TransactionID)
        if (removed !== undefined) webhooks.restore(removed)
        if ('deadLetter' in entry) deadLetters.remove([entry.deadLetter.ID])
        deadLetters.add(removedLetters)
        if ('record' in entry) records.apply({ ...entry.record, row: recordBefore ?? null })
        if (operationBefore !== undefined) operations.put(operationBefore)
        else if ('operation' in entry) operations.remove(entry.operation.ID)
        if (cursorBefore !== undefined) cursors.set(cursorRealm, cursorBefore)
        else cursors.delete(cursorRealm)
        if ('deliveredAt' in entry) deliveredAt = deliveredBefore
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

  return {
    table,
    log,
    webhooks,
    deadLetters,
    operations,
    records,
    cursors,
    deliveredAt: () => deliveredAt,
    paused: () => paused,
    retention: () => retention,
    commit,
    async flush() {
      await flushed.catch((error: unknown) => {
        throw unwritable(error)
      })
    },
    async compact() {
      await journal.compact().catch((error: unknown) => {
        throw unwritable(error)
      })
    },
    async [Symbol.asyncDispose]() {
      await journal.close()
      unlock()
    },
  }
}
