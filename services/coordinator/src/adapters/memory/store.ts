/**
 * The state of the memory source and its files, `ITSourceMemory.json` and a journal. Only one OS process at a time may
 * use the folder.
 *
 * A change is applied in memory at once, and becomes durable when it is flushed to disk. If the flush fails, the change
 * is undone, together with every later change that was not flushed yet.
 */
import { join } from 'node:path'
import { lockFolder } from '@integration-host/shared/files/durable-file'
import { IntegrationError } from '@integration-host/shared/errors'
import { z } from 'zod'
import { type Action, ACTIONS, type DoneEntry } from '../../run/action.ts'
import type { NewAction } from '../../records/records.ts'
import type { Run, RunKey } from '../../run/run.ts'
import * as transitions from '../../run/transitions.ts'
import type { StoredRun } from '../../run/transitions.ts'
import { turnsAfter } from './families.ts'
import { damaged, type JournalOptions, openJournal, readJournal } from './journal.ts'
import { type Absorbed, createRunTable, type RunTable } from './run-table.ts'
import { changesOf, type EarlierMembers, type EarlierRun } from './earlier-files.ts'
import {
  createRecordTables,
  endLeases,
  INSTALLATION,
  keyOf,
  type RecordChange,
  type RecordTables,
} from './records.ts'

interface State extends EarlierMembers {
  readonly runs: readonly EarlierRun[]
  /** Missing in a snapshot that was written before the action log existed. */
  readonly actions?: readonly Action[]
  /** Missing in a snapshot that was written before debounced transactions existed. */
  readonly absorbed?: readonly Absorbed[]
  /** The rows of the tables of `Records`. */
  readonly records?: readonly RecordChange[]
}

/**
 * One durable change of the state, with the entry of the action log if an action made the change. Each member of the
 * union is one kind of change. A change with only `action` is a rejected action.
 *
 * `records` are changed together with the run, for example the entries of what its step has written to the books.
 *
 * An entry with `run` can also have `absorbed`, the ids of the transactions that the run absorbs. `forgotten` names a
 * deleted run.
 */
export type Entry = {
  readonly action?: Action
  readonly record?: RecordChange
  readonly records?: readonly RecordChange[]
} & (
  | { readonly action: Action }
  | {
      readonly run: StoredRun
      readonly absorbed?: readonly string[]
    }
  | { readonly forgotten: RunKey }
  | { readonly record: RecordChange }
  | { readonly records: readonly RecordChange[] }
)

// This schema checks only what is needed to recognise a snapshot. The rest of the file needs no check, because this
// code has written it.
const StateSchema = z.object({
  runs: z.array(z.looseObject({ header: z.looseObject({ Process: z.string() }) })),
  paused: z.array(z.unknown()).optional(),
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
  Priority: 'normal',
}
const withAllMembers = ({ filesLeft: _left, ...stored }: EarlierRun): StoredRun => ({
  ...stored,
  header: { ...LATER_MEMBERS, ...stored.header },
})

export interface MemoryStore extends AsyncDisposable {
  readonly table: RunTable
  readonly log: ReturnType<typeof actionLog>
  readonly records: RecordTables
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
  const records = createRecordTables()
  const log = actionLog(records, now)
  /** The functions that undo the changes that are not flushed yet, one for each change, oldest first. */
  let undo: (() => void)[] = []
  /** Resolves when every change so far is flushed. */
  let flushed: Promise<unknown> = Promise.resolve()

  /** Applies a change, and returns what undoes the changes of records. */
  const apply = (entry: Entry): readonly RecordChange[] => {
    if ('run' in entry) {
      table.put(entry.run)
      table.addAbsorbed(entry.run.header, entry.absorbed ?? [])
    }
    if ('forgotten' in entry) {
      const forgotten = table.get(entry.forgotten)
      if (forgotten !== undefined) table.remove(forgotten)
    }
    return [
      ...(entry.action === undefined ? [] : [actionChange(entry.action)]),
      ...(entry.record === undefined ? [] : [entry.record]),
      ...(entry.records ?? []),
    ].map((change) => records.apply(change))
  }
  /** Applies what an earlier version has stored in another form. */
  const applyEarlier = (earlier: EarlierMembers): void => {
    for (const change of changesOf(earlier, records)) records.apply(change)
  }

  let journal: Awaited<ReturnType<typeof openJournal>>
  try {
    const loaded = readJournal(path, journalPath)
    if (loaded.state !== null) {
      const state = StateSchema.safeParse(loaded.state)
      if (!state.success) throw damaged(path)
      for (const run of (loaded.state as State).runs) table.put(withAllMembers(run))
      for (const { run, ids } of (loaded.state as State).absorbed ?? []) table.addAbsorbed(run, ids)
      for (const action of (loaded.state as State).actions ?? [])
        records.apply(actionChange(action))
      applyEarlier(loaded.state as State)
      for (const record of (loaded.state as State).records ?? []) records.apply(record)
    }
    const keeps = { table: INSTALLATION, key: keyOf(['KeepsByDefault']) }
    const isKnown = records.get(keeps.table, keeps.key) !== undefined
    if (!isKnown) {
      const Value = table.all().length > 0 || loaded.entries.length > 0
      records.apply({ ...keeps, row: { Name: 'KeepsByDefault', Value } })
    }
    for (const entry of loaded.entries as (Entry & EarlierMembers)[]) {
      apply('run' in entry ? { ...entry, run: withAllMembers(entry.run) } : entry)
      applyEarlier(entry)
    }
    endLeases(records)
    for (const stored of table.active()) table.put(transitions.afterRestart(stored, now()))
    journal = await openJournal(
      {
        snapshotPath: path,
        journalPath,
        openFile,
        state: (): State => ({
          runs: table.all(),
          actions: [...records.values(ACTIONS.table)] as Action[],
          records: records.all().filter((change) => change.table !== ACTIONS.table),
          absorbed: table.allAbsorbed(),
        }),
        onFailure: () => {
          for (const undoOne of undo.toReversed()) undoOne()
          undo = []
        },
      },
      loaded,
    )
    // Files of an earlier version do not say whether runs are kept. The default depends on whether there are runs, so it
    // is written before more runs are queued.
    if (loaded.state !== null && !isKnown) await journal.compact()
  } catch (error) {
    unlock()
    throw error
  }

  /** Applies the changes and resolves when they are durable. */
  async function commit(...entries: readonly Entry[]): Promise<void> {
    if (entries.length === 0) return
    const undos = entries.map(applied)
    // The end of a child gives its turn to a sibling.
    const at = { now: now(), sweepMs: 0, leaseMs: 0 }
    const turns: Entry[] = []
    for (const entry of entries) {
      if (!('run' in entry)) continue
      for (const run of turnsAfter({ table, records }, entry.run, at)) {
        turns.push({ run })
        undos.push(applied({ run }))
      }
    }
    undo.push(...undos)
    try {
      const appended = Promise.all([...entries, ...turns].map((entry) => journal.append(entry)))
      flushed = appended
      await appended
      undo = undo.filter((undoOne) => !undos.includes(undoOne))
    } catch (error) {
      throw unwritable(error)
    }
  }
  /** Applies a change, and returns what undoes it. */
  const applied = (entry: Entry): (() => void) => {
    const key = 'run' in entry ? entry.run.header : 'forgotten' in entry ? entry.forgotten : null
    const before = key === null ? undefined : table.get(key)
    const absorbedBefore = 'forgotten' in entry ? table.absorbedBy(entry.forgotten) : []
    const recordsBefore = apply(entry)
    return () => {
      if ('run' in entry) table.removeAbsorbed(entry.run.header, entry.absorbed ?? [])
      if ('run' in entry && before === undefined) table.remove(entry.run)
      if (before !== undefined) table.put(before)
      if (key !== null) table.addAbsorbed(key, absorbedBefore)
      for (const record of recordsBefore.toReversed()) records.apply(record)
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
    records,
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

// `OperationID` may be missing, because some entries were written before bulk operations existed.
const actionChange = (action: Action): RecordChange => ({
  table: ACTIONS.table,
  key: keyOf([action.ID]),
  row: { ...action, OperationID: (action as Partial<Action>).OperationID ?? null },
})

/** The action log. Its entries are rows, which are written to the files in a form of their own. */
const actionLog = (records: RecordTables, now: () => number) => ({
  /** Returns a complete entry, which is not added to the log yet. */
  next: (entry: NewAction): Action => ({
    ID: records.nextId(ACTIONS.table),
    At: new Date(now()).toISOString(),
    ...entry,
  }),
  /** Returns the entry that a bulk operation has written when it changed a transaction. */
  doneBy: (
    operationId: string,
    { Process, TransactionID }: Pick<Action, 'Process' | 'TransactionID'>,
  ): DoneEntry | undefined =>
    (records.group(ACTIONS.table, [operationId, Process, TransactionID]) as Action[]).findLast(
      ({ Outcome }) => Outcome === 'done',
    ),
})
