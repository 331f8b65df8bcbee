import { appendFileSync, readFileSync, truncateSync, writeFileSync } from 'node:fs'
import {
  copyFile,
  mkdtemp,
  open as openFile,
  readdir,
  readFile,
  rm,
  writeFile,
} from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { crc32 } from 'node:zlib'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../../test-support/act.ts'
import {
  type MovableSource,
  openMovableMemorySource,
} from '../../../test-support/movable-source.ts'
import { aSearch } from '../../../test-support/search.ts'
import { actionLogContract } from '../../run/action-log.contract.ts'
import { auditContract } from '../../run/audit.contract.ts'
import { createDeadLetterStore, type DeadLetter } from '../../dead-letter/dead-letter-store.ts'
import { deadLetterContract } from '../../dead-letter/dead-letter-store.contract.ts'
import { erasureContract } from '../../run/erasure.contract.ts'
import { runDetailContract } from '../../run/run-detail.contract.ts'
import { retentionContract } from '../../run/retention.contract.ts'
import { runSearchContract } from '../../run/run-search.contract.ts'
import { debounceContract } from '../../run/debounce.contract.ts'
import { delayedRunsContract } from '../../run/delayed-runs.contract.ts'
import { priorityContract } from '../../run/priority.contract.ts'
import { runTermsContract } from '../../run/run-terms.contract.ts'
import { runExportContract } from '../../run/run-export.contract.ts'
import { payloadContract } from '../../run/payload.contract.ts'
import { sealedRunsContract } from '../../run/sealed-runs.contract.ts'
import { sealedKeysContract } from '../../run/sealed-keys.contract.ts'
import { sealed } from '../../../test-support/payload-keys.ts'
import { leasesContract } from '../../run/leases.contract.ts'
import { runStepsContract } from '../../run/run-steps.contract.ts'
import { transactionSourceContract } from '../../run/transaction-source.contract.ts'
import { operationsContract } from '../../bulk/bulk-operation.contract.ts'
import { eventsContract } from '../../run/events.contract.ts'
import { undoContract } from '../../run/undo.contract.ts'
import { FILES_LEFT } from '../../run/retention.ts'
import { operatorActionsContract } from '../../run/operator-actions.contract.ts'
import { changeCursorsContract } from '../../change-feed/change-cursors.contract.ts'
import { schedulesContract } from '../../schedule/schedule-store.contract.ts'
import { slotsContract } from '../../run/slots.contract.ts'
import { bookEntryContract } from '../../entry/book-entry.contract.ts'
import { proveEntriesContract } from '../../entry/prove-entries.contract.ts'
import { createOnceContract } from '../../entry/create-once.contract.ts'
import { subscriptionsContract } from '../../change/subscriptions.contract.ts'
import { targetCallsContract } from '../../run/target-calls.contract.ts'
import { createPauseStore } from '../../run/pause.ts'
import { webhooksContract } from '../../webhook/webhook-queue.contract.ts'
import type { TransactionSource, WebhooksOf } from '../../run/transaction-source.ts'
import type { JournalOptions } from './journal.ts'
import { createMemoryTransactionSource } from './transaction-source.ts'
import { readActions, recordWithoutChange } from '../../run/action.ts'
import { webhookBacklog } from '../../webhook/webhook-backlog.ts'

const folders: string[] = []
const newFolder = async (): Promise<string> => {
  const folder = await mkdtemp(join(tmpdir(), 'coordinator-'))
  folders.push(folder)
  return folder
}
afterEach(async () => {
  for (const folder of folders.splice(0)) await rm(folder, { recursive: true })
})

const open = async (webhooksOf?: WebhooksOf): Promise<MovableSource> =>
  openMovableMemorySource(await newFolder(), webhooksOf)

runStepsContract('ITSourceMemory.json', open)
leasesContract('ITSourceMemory.json', open)
transactionSourceContract('ITSourceMemory.json', open)
slotsContract('ITSourceMemory.json', open)
schedulesContract('ITSourceMemory.json', open)
actionLogContract('ITSourceMemory.json', open)
auditContract('ITSourceMemory.json', open)
deadLetterContract('ITSourceMemory.json', open)
runDetailContract('ITSourceMemory.json', open)
runExportContract('ITSourceMemory.json', open)
operationsContract('ITSourceMemory.json', open)
retentionContract('ITSourceMemory.json', open)
operatorActionsContract('ITSourceMemory.json', open)
eventsContract('ITSourceMemory.json', open)
undoContract('ITSourceMemory.json', open)
webhooksContract('ITSourceMemory.json', open)
targetCallsContract('ITSourceMemory.json', open)
subscriptionsContract('ITSourceMemory.json', open)
bookEntryContract('ITSourceMemory.json', open)
proveEntriesContract('ITSourceMemory.json', open)
createOnceContract('ITSourceMemory.json', open, process.env['TEST_FAULTS'] === undefined ? 60 : 500)
changeCursorsContract('ITSourceMemory.json', open)
debounceContract('ITSourceMemory.json', open)
delayedRunsContract('ITSourceMemory.json', open)
runTermsContract('ITSourceMemory.json', open)
priorityContract('ITSourceMemory.json', open)
runSearchContract('ITSourceMemory.json', open)
sealedKeysContract('ITSourceMemory.json', open)
sealedRunsContract('ITSourceMemory.json', open)
payloadContract('ITSourceMemory.json', open)
erasureContract('ITSourceMemory.json', open)
runStepsContract('ITSourceMemory.json with payload keys', async () => sealed(await open()))
eventsContract('ITSourceMemory.json with payload keys', async () => sealed(await open()))
undoContract('ITSourceMemory.json with payload keys', async () => sealed(await open()))

describe('the files of the in-memory transaction source', () => {
  const process = { name: 'OrderProcess', steps: ['order', 'report'] as const }
  const outline = { name: process.name, steps: [...process.steps] as [string, ...string[]] }
  let folder: string
  let snapshot: string
  let journal: string
  beforeEach(async () => {
    folder = await newFolder()
    snapshot = join(folder, 'ITSourceMemory.json')
    journal = join(folder, 'ITSourceMemory.journal')
  })

  it.each(['the journal', 'the snapshot'])(
    'a waiting run and the ids that it has absorbed are restored from %s after a restart',
    async (file) => {
      const debounced = (id: string) => ({
        TransactionID: id,
        InitialData: id,
        Debounce: { Key: 'k', Seconds: 3_600 },
      })
      const source = await createMemoryTransactionSource(folder)
      await source.queue(outline, [debounced('a'), debounced('b')])
      await source.queue(outline, [debounced('c')])
      if (file === 'the snapshot') await source.compact() // writes the snapshot
      await source[Symbol.asyncDispose]()
      await using reopened = await createMemoryTransactionSource(folder)
      const results = await reopened.queue(outline, ['a', 'b', 'c', 'd'].map(debounced))
      expect(
        results.map(({ outcome, run }) => [outcome, run?.TransactionID, run?.Absorbed]),
      ).toEqual([
        ['exists', 'a', 3],
        ['exists', 'a', 3],
        ['exists', 'a', 3],
        ['absorbed', 'a', 3],
      ])
    },
  )

  it('the journal and the snapshot do not contain the data of erased runs', async () => {
    const source = await createMemoryTransactionSource(folder)
    const data = { TransactionID: '1', InitialData: 'personal data', Realm: 'r1' }
    await source.queue(outline, [data])
    await source.operate('cancel', outline, '1', null, anAct)
    const files = async () => (await readFile(snapshot, 'utf8')) + (await readFile(journal, 'utf8'))
    expect(await files()).toContain('personal data')
    const scope = { Realm: 'r1', Process: null }
    const { runs } = await source.erasable(scope, { after: null, limit: 10 })
    expect(await source.erase(runs, anAct)).toBe(1)
    await source.compact()
    expect(await files()).not.toContain('personal data')
    await source[Symbol.asyncDispose]()
    await using reopened = await createMemoryTransactionSource(folder)
    const found = await reopened.get(outline.name, '1', null)
    expect(found?.run).toMatchObject({ Status: 'Cancelled', InitialData: null })
  })

  it('after a restart, the undelivered webhooks are restored in order from the journal and the snapshot', async () => {
    const webhook = (id: string) => ({
      Receiver: 'one',
      Realm: 'r1',
      Lane: '',
      TransactionID: id,
      InitialData: { MessageID: id },
    })
    const first = await createMemoryTransactionSource(folder, {
      webhooksOf: ({ Status, TransactionID }) =>
        Status === 'Failed' ? [webhook(`failed ${TransactionID}`)] : [],
    })
    await first.addWebhooks([webhook('1'), webhook('2')])
    const [queued] = await first.queue(outline, [{ TransactionID: 'x', InitialData: 1 }])
    if (queued?.run === undefined || queued.outcome === 'conflict') throw new Error('not queued')
    await first.failRun(queued.run, 0, 'no', 'no')
    await first.startWebhooks(10)
    await first.operate('cancel', { name: 'Webhook' }, '1', null, anAct)
    await first.startWebhooks(10)
    await first[Symbol.asyncDispose]()
    for (const reads of ['the journal', 'the snapshot']) {
      await using again = await createMemoryTransactionSource(folder)
      expect(await webhookBacklog(again), reads).toMatchObject([{ receiver: 'one', waiting: 2 }])
      expect((await again.get('Webhook', '2', null))?.run.Status).toBe('Queued')
    }
    await using last = await createMemoryTransactionSource(folder)
    await last.operate('cancel', { name: 'Webhook' }, '2', null, anAct)
    expect((await last.startWebhooks(10)).runs).toMatchObject([{ TransactionID: 'failed x' }])
  })

  it('the webhooks in the files of an earlier version keep their order', async () => {
    const webhook = (TransactionID: string) => ({
      Receiver: 'one',
      TransactionID,
      InitialData: {},
      Realm: '42',
      Lane: '7',
      At: '2026-11-01T00:00:00.000Z',
    })
    const state = { runs: [], webhooks: ['z', 'a', 'gone'].map(webhook) }
    await writeFile(
      snapshot,
      JSON.stringify({ format: 'integration-host transactions 1', n: 0, state }),
    )
    const text = JSON.stringify({ n: 1, entry: { delivered: 'z' } })
    await writeFile(journal, `${crc32(text).toString(16).padStart(8, '0')} ${text}\n`)
    await using source = await createMemoryTransactionSource(folder)
    expect(await webhookBacklog(source)).toMatchObject([{ receiver: 'one', waiting: 2 }])
    expect((await source.startWebhooks(10)).runs).toMatchObject([{ TransactionID: 'a' }])
  })

  it('after a restart, the dead letters and their ids are restored from the journal and the snapshot', async () => {
    const letter = (MessageID: string) => ({
      Process: process.name,
      MessageID,
      Reason: 'malformed',
      TransactionID: null,
      ReplayID: null,
      StepName: null,
      Content: Buffer.from([0, 0xff]),
      ContentBytes: 2,
    })
    const first = await createMemoryTransactionSource(folder)
    const letters = createDeadLetterStore(first)
    for (const id of ['a', 'b', 'c']) await letters.add(letter(id))
    const third = (await letters.find(process.name, 3)) as DeadLetter
    await letters.remove(third, 'delete_dead_letter', anAct)
    const other = await newFolder()
    await copyFile(snapshot, join(other, 'ITSourceMemory.json'))
    await copyFile(journal, join(other, 'ITSourceMemory.journal'))
    await first[Symbol.asyncDispose]()
    for (const at of [other, folder, folder]) {
      await using again = await createMemoryTransactionSource(at)
      const kept = createDeadLetterStore(again)
      const page = { limit: 10, contentBytes: 10 }
      expect(await kept.list(process.name, page)).toMatchObject([
        { ID: 2, MessageID: 'b', Content: Buffer.from([0, 0xff]) },
        { ID: 1, MessageID: 'a' },
      ])
      await kept.add(letter('a'))
      await kept.add(letter('new'))
      const [added] = await kept.list(process.name, page)
      expect(added?.ID).toBeGreaterThan(3)
      await kept.remove(added as DeadLetter, 'delete_dead_letter', anAct)
    }
  })

  it('the dead letters in the files of an earlier version keep their ids, and no removed id is used again', async () => {
    const noRun = { TransactionID: null, ReplayID: null, StepName: null }
    const content = { Content: 'AP8=', ContentBytes: 2, Reason: 'malformed', At: '2026-11-01' }
    const letter = (ID: number) => ({
      ID,
      Process: process.name,
      MessageID: `m/${ID}`,
      ...noRun,
      ...content,
    })
    const state = { runs: [], deadLetters: [1, 2, 3].map(letter), lastDeadLetterId: 7 }
    const format = 'integration-host transactions 1'
    await writeFile(snapshot, JSON.stringify({ format, n: 1, state }))
    const entries = [{ deadLetter: letter(8) }, { deadLetter: letter(9) }]
    const lines = [...entries, { removedDeadLetters: [2, 9] }].map((entry, at) => {
      const text = JSON.stringify({ n: at + 2, entry })
      return `${crc32(text).toString(16).padStart(8, '0')} ${text}\n`
    })
    await writeFile(journal, lines.join(''))
    for (const expected of [
      [8, 3, 1],
      [10, 8, 3, 1],
    ]) {
      await using source = await createMemoryTransactionSource(folder)
      const letters = createDeadLetterStore(source)
      const found = await letters.list(process.name, { limit: 10, contentBytes: 2 })
      expect(found.map(({ ID }) => ID)).toEqual(expected)
      expect(found.at(-1)?.Content).toEqual(Buffer.from([0, 0xff]))
      await letters.add({ ...letter(8), Content: Buffer.from([1]) }) // it is stored already
      await letters.add({ ...letter(10), Content: Buffer.from([1]) })
    }
  })

  /** Opens a journal that cannot grow while the disk is full. */
  const fileOn =
    (disk: { readonly isFull: boolean }): NonNullable<JournalOptions['openFile']> =>
    async (path) => {
      const file = await openFile(path, 'a+')
      return {
        appendFile: async (lines) => {
          if (disk.isFull) throw new Error('ENOSPC')
          await file.appendFile(lines)
        },
        datasync: () => file.datasync(),
        sync: () => file.sync(),
        truncate: (length) => file.truncate(length),
        close: () => file.close(),
      }
    }

  it('if the disk is full, adding or removing a dead letter fails and changes nothing', async () => {
    const disk = { isFull: false }
    await using source = await createMemoryTransactionSource(folder, { openFile: fileOn(disk) })
    const letter = {
      Process: process.name,
      Reason: 'malformed',
      TransactionID: null,
      ReplayID: null,
      StepName: null,
      Content: Buffer.from(''),
      ContentBytes: 0,
    }
    const letters = createDeadLetterStore(source)
    await letters.add({ ...letter, MessageID: 'a' })
    disk.isFull = true
    const unavailable = { code: 'store_unavailable' }
    await expect(letters.add({ ...letter, MessageID: 'b' })).rejects.toMatchObject(unavailable)
    await expect(letters.removeAll(process.name, anAct)).rejects.toMatchObject(unavailable)
    disk.isFull = false
    const ids = async () =>
      (await letters.list(process.name, { limit: 10, contentBytes: 1 })).map(
        ({ MessageID }) => MessageID,
      )
    expect(await ids()).toEqual(['a'])
    await letters.add({ ...letter, MessageID: 'b' })
    expect(await ids()).toEqual(['b', 'a'])
  })

  const fill = async (ids: readonly string[]): Promise<void> => {
    await using source = await createMemoryTransactionSource(folder)
    for (const id of ids) await source.queue(outline, [{ TransactionID: id, InitialData: id }])
  }
  const ids = async (): Promise<string[]> => {
    const source = await createMemoryTransactionSource(folder)
    const { runs } = await source.search(aSearch(process.name))
    await source[Symbol.asyncDispose]()
    return runs.map(({ TransactionID }) => TransactionID).toSorted()
  }

  it('the in-memory transaction source restores runs, items and paused processes from ITSourceMemory.json after a restart', async () => {
    await fill(['1', '2'])
    expect(JSON.parse(await readFile(snapshot, 'utf8')).state.runs).toHaveLength(2)
    expect(await ids()).toEqual(['1', '2'])
  })

  it('after a restart, a run that was in progress is due at once and is not reported as stuck', async () => {
    const source = await createMemoryTransactionSource(folder)
    const [step] = outline.steps
    await source.queue(outline, [{ TransactionID: '1', InitialData: 1 }])
    const run = { Process: outline.name, TransactionID: '1', ReplayID: 0 }
    const claimed = { ...run, version: 0, step, isFirst: true, owner: 'dead' }
    expect((await source.claim(claimed)).kind).toBe('claimed')
    await source[Symbol.asyncDispose]()
    await using reopened = await createMemoryTransactionSource(folder)
    expect((await reopened.audit([process.name])).violations).toMatchObject({ stuck: 0 })
    const due = { process: outline.name, step, isFirst: true, version: null, deadlineMs: null }
    expect(await reopened.due([due], 10)).toHaveLength(1)
  })

  it('the in-memory transaction source restores the action log from its journal and its snapshot, and uses no id twice', async () => {
    const source = await createMemoryTransactionSource(folder)
    await source.queue(outline, [{ TransactionID: '1', InitialData: 1, Reason: 'why' }], anAct.by)
    await source.operate('cancel', process, '1', null, anAct)
    await createPauseStore(source).setPaused(process.name, true, anAct)
    const rejected = {
      kind: 'cancel',
      act: anAct,
      Process: process.name,
      TransactionID: '1',
    } as const
    await recordWithoutChange(source, {
      ...rejected,
      ReplayID: null,
      Outcome: 'transaction_not_active',
    })
    const written = await readActions(source, { limit: 10 })
    const log = readFileSync(journal)
    await source[Symbol.asyncDispose]()

    const fromSnapshot = await createMemoryTransactionSource(folder)
    expect(await readActions(fromSnapshot, { limit: 10 })).toEqual(written)
    await fromSnapshot[Symbol.asyncDispose]()
    await rm(snapshot)
    writeFileSync(journal, log)
    await using fromJournal = await createMemoryTransactionSource(folder)
    expect(await readActions(fromJournal, { limit: 10 })).toEqual(written)
    expect([...(await createPauseStore(fromJournal).paused()).keys()]).toEqual([process.name])
    await createPauseStore(fromJournal).setPaused(process.name, false, anAct)
    expect((await readActions(fromJournal, { limit: 10 })).map(({ ID }) => ID)).toEqual([
      5, 4, 3, 2, 1,
    ])
  })

  it('the in-memory transaction source opens a snapshot of a version that had no action log', async () => {
    await fill(['1'])
    const { state, ...file } = JSON.parse(await readFile(snapshot, 'utf8'))
    delete state.actions
    await writeFile(snapshot, JSON.stringify({ ...file, state }))
    await using source = await createMemoryTransactionSource(folder)
    expect(await readActions(source, { limit: 10 })).toEqual([])
  })

  it('the in-memory transaction source opens a snapshot of a version whose runs had no tags and were never purged', async () => {
    await fill(['1'])
    const { state, ...file } = JSON.parse(await readFile(snapshot, 'utf8'))
    for (const { header } of state.runs)
      for (const member of ['Tags', 'InputChanged', 'ErasedAt', 'PurgedAt']) delete header[member]
    await writeFile(snapshot, JSON.stringify({ ...file, state }))
    await using source = await createMemoryTransactionSource(folder)
    const { runs } = await source.search(aSearch(outline.name))
    const members = { Tags: null, InputChanged: false, ErasedAt: null, PurgedAt: null }
    expect(runs).toMatchObject([{ TransactionID: '1', ...members }])
  })

  /** Queues the run `parent`, which waits for a child. */
  async function addParent(source: TransactionSource): Promise<void> {
    const key = { Process: outline.name, TransactionID: 'parent', ReplayID: 0 }
    const step = outline.steps[0]
    await source.queue(outline, [{ TransactionID: 'parent', InitialData: 1 }])
    const result = await source.claim({ ...key, step, isFirst: true, version: 0, owner: 'a' })
    if (result.kind !== 'claimed') throw new Error(result.kind)
    const child = { TransactionID: 'child', Item: 0, InitialData: 1, Realm: null }
    await source.recordChildren(
      result.claim.lease,
      {
        process: { name: 'Child', steps: ['only'] },
        Place: step,
        Prefix: '',
        Total: 1,
        Tolerated: 0,
        Concurrent: null,
        children: [{ ...child, ConcurrencyKey: null }],
      },
      () => ({
        status: 'Waiting',
        stepName: step,
        attempt: 0,
        delayMs: null,
        waitingFor: `children:${step}`,
        lastError: null,
        errorClass: null,
        isInDoubt: false,
        item: { status: 'Waiting', response: null, data: null, error: null, ask: null },
      }),
    )
  }

  it('if the disk is full, runs with children are not forgotten, and no rejection is left without a handler', async () => {
    const disk = { isFull: false }
    let atMs = Date.now()
    await using source = await createMemoryTransactionSource(folder, {
      openFile: fileOn(disk),
      now: () => atMs,
    })
    await addParent(source)
    await source.operate('cancel', outline, 'parent', null, anAct)
    const key = { Process: outline.name, TransactionID: 'parent', ReplayID: 0 }
    atMs += 1_000
    expect(await source.purge({ process: outline.name, completedMs: 0, failedMs: 0 }, [key])).toBe(
      1,
    )
    for (const row of await source.records(FILES_LEFT).rows())
      await source.records(FILES_LEFT).replace(row, undefined)
    atMs += 1_000
    disk.isFull = true
    await expect(source.forget(0, 10)).rejects.toMatchObject({ code: 'store_unavailable' })
    disk.isFull = false
    expect(await source.forget(0, 10)).toBe(1)
  })

  it('of many concurrent resumes of a run with children, only one is executed', async () => {
    await using source = await createMemoryTransactionSource(folder)
    await addParent(source)
    await source.operate('cancel', outline, 'parent', null, anAct)
    const resumes = await Promise.allSettled(
      Array.from({ length: 20 }, () => source.operate('resume', outline, 'parent', null, anAct)),
    )
    expect(resumes.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
  })

  it('a purged run of an earlier version whose files may remain is named until the files are removed', async () => {
    await fill(['1'])
    const { state, ...file } = JSON.parse(await readFile(snapshot, 'utf8'))
    state.runs[0].filesLeft = true
    await writeFile(snapshot, JSON.stringify({ ...file, state }))
    for (const left of [1, 0]) {
      await using source = await createMemoryTransactionSource(folder)
      const rows = await source.records(FILES_LEFT).rows()
      expect(rows).toHaveLength(left)
      for (const row of rows) {
        expect(row.Value).toEqual([{ Process: outline.name, TransactionID: '1', ReplayID: 0 }])
        await source.records(FILES_LEFT).replace(row, undefined)
      }
    }
  })

  it('the in-memory transaction source acknowledges a change only after flushing it to disk', async () => {
    await using source = await createMemoryTransactionSource(folder)
    await source.queue(outline, [{ TransactionID: 'one', InitialData: 'x' }])
    expect(readFileSync(journal, 'utf8')).toContain('"one"')
  })

  it('if the last write was cut off at any byte, the files can be opened in the state before or after that write', async () => {
    const source = await createMemoryTransactionSource(folder)
    await source.queue(outline, [{ TransactionID: 'first', InitialData: 1 }])
    const before = readFileSync(journal)
    await source.queue(outline, [{ TransactionID: 'second', InitialData: 2 }])
    const whole = readFileSync(journal)
    await source[Symbol.asyncDispose]()
    for (let length = before.length; length <= whole.length; length += 7) {
      await rm(snapshot)
      writeFileSync(journal, whole.subarray(0, length))
      expect(await ids()).toEqual(length === whole.length ? ['first', 'second'] : ['first'])
    }
  })

  it('an incomplete last entry is removed from the journal, and new entries are appended after the last complete entry', async () => {
    await fill(['1'])
    appendFileSync(journal, 'deadbeef {"n":9,"ent')
    await fill(['2'])
    expect(await ids()).toEqual(['1', '2'])
  })

  it('each journal entry is applied once, even after a crash between writing the snapshot and truncating the journal', async () => {
    const source = await createMemoryTransactionSource(folder)
    const [queued] = await source.queue(outline, [{ TransactionID: '1', InitialData: 1 }])
    if (queued?.outcome !== 'queued') throw new Error('not queued')
    const log = readFileSync(journal)
    await source.operate('cancel', process, '1', null, anAct)
    await source[Symbol.asyncDispose]()
    writeFileSync(journal, log)
    await using again = await createMemoryTransactionSource(folder)
    expect((await again.get(process.name, '1', 0))?.run.Status).toBe('Cancelled')
  })

  it.each([
    ['not JSON', 'not json at all'],
    ['JSON of another format', '{"format":"something else","n":1,"state":{}}'],
    ['truncated in the middle', null],
    ['empty', ''],
  ])(
    'if ITSourceMemory.json is %s, the source fails to open, names the file in its error, and does not change the file',
    async (_, text) => {
      await fill(['1'])
      const sound = await readFile(snapshot)
      if (text === null) truncateSync(snapshot, 40)
      else await writeFile(snapshot, text)
      const damaged = await readFile(snapshot)
      await expect(createMemoryTransactionSource(folder)).rejects.toMatchObject({
        name: 'StartupError',
        message: expect.stringContaining(snapshot),
      })
      expect(await readFile(snapshot)).toEqual(damaged)
      // The failed start has released the lock on the folder, so the next start succeeds.
      await writeFile(snapshot, sound)
      expect(await ids()).toEqual(['1'])
    },
  )

  it('the in-memory transaction source removes the temporary file of a snapshot that was never completed', async () => {
    await fill(['1'])
    await writeFile(`${snapshot}.tmp`, '{"format":')
    expect(await ids()).toEqual(['1'])
    expect((await readdir(folder)).filter((name) => name.endsWith('.tmp'))).toEqual([])
  })

  it('the in-memory transaction source fails to open if a journal entry other than the last one is damaged', async () => {
    const source = await createMemoryTransactionSource(folder)
    for (const id of ['1', '2', '3'])
      await source.queue(outline, [{ TransactionID: id, InitialData: id }])
    const bytes = readFileSync(journal)
    await source[Symbol.asyncDispose]()
    await rm(snapshot)
    bytes[20] = (bytes[20] ?? 0) ^ 1
    writeFileSync(journal, bytes)
    await expect(createMemoryTransactionSource(folder)).rejects.toThrow(journal)
    expect(readFileSync(journal)).toEqual(bytes)
  })

  it('a second in-memory transaction source cannot open a folder that another one has open, and its error names the folder', async () => {
    const first = await createMemoryTransactionSource(folder)
    await expect(createMemoryTransactionSource(folder)).rejects.toMatchObject({
      name: 'StartupError',
      message: expect.stringContaining(folder),
    })
    await first[Symbol.asyncDispose]()
    await fill(['1'])
  })

  it('the in-memory transaction source undoes a change in memory if it cannot write the change to disk', async () => {
    const module = new URL('./transaction-source.ts', import.meta.url).href
    const search = new URL('../../../test-support/search.ts', import.meta.url).href
    const action = new URL('../../run/action.ts', import.meta.url).href
    const script = `
      process.on('SIGXFSZ', () => {}) // ignored, so that the write fails with EFBIG instead of ending the OS process
      const { createMemoryTransactionSource } = await import('${module}')
      const { aSearch } = await import('${search}')
      const { readActions } = await import('${action}')
      const source = await createMemoryTransactionSource(${JSON.stringify(folder)})
      const outline = { name: 'OrderProcess', steps: ['order'] }
      const acknowledged = []
      const refused = []
      for (let n = 0; n < 60; n += 1)
        await source.queue(outline, [{ TransactionID: 'id-' + n, InitialData: 'x'.repeat(n < 50 ? 400 : 1) }], { keyId: 'ops', person: null })
          .then(() => acknowledged.push('id-' + n), (error) => refused.push(error.code))
      const { runs } = await source.search(${JSON.stringify(aSearch('OrderProcess'))})
      const listed = runs.map((run) => run.TransactionID)
      const recorded = (await readActions(source, { limit: 500 })).map((action) => action.TransactionID)
      console.log(JSON.stringify({ acknowledged, refused, listed, recorded }))
      process.exit()`
    const child = spawn('sh', [
      '-c',
      'ulimit -f 16; exec "$0" --input-type=module -e "$1"',
      globalThis.process.execPath,
      script,
    ])
    let output = ''
    child.stdout.on('data', (data) => (output += String(data)))
    await once(child, 'exit')
    const { acknowledged, refused, listed, recorded } = JSON.parse(output)
    expect(refused.length).toBeGreaterThan(5)
    expect(new Set(refused)).toEqual(new Set(['store_unavailable']))
    expect(acknowledged.length).toBeGreaterThan(5)
    expect(listed.toSorted()).toEqual(acknowledged.toSorted())
    expect(recorded).toEqual(acknowledged.toReversed())
    expect(await ids()).toEqual(acknowledged.toSorted())
  })

  it('after the OS process of an embedded host was killed, the next host finds every acknowledged change', async () => {
    const module = new URL('./transaction-source.ts', import.meta.url).href
    const script = `
      const { createMemoryTransactionSource } = await import('${module}')
      const source = await createMemoryTransactionSource(${JSON.stringify(folder)})
      const outline = { name: 'OrderProcess', steps: ['order'] }
      const [result] = await source.queue(outline, [{ TransactionID: '1', InitialData: 1 }])
      const { Process, TransactionID, ReplayID, Version: version } = result.run
      await source.claim({ Process, TransactionID, ReplayID, version, step: 'order', isFirst: true, owner: 'dead' })
      console.log('acknowledged')
      setInterval(() => {}, 1000)`
    const child = spawn(globalThis.process.execPath, ['--input-type=module', '-e', script])
    await once(child.stdout, 'data')
    child.kill('SIGKILL')
    await once(child, 'exit')
    await using source = await createMemoryTransactionSource(folder)
    const [due] = await source.due([{ process: 'OrderProcess', step: 'order', isFirst: true }], 10)
    expect(due).toMatchObject({ TransactionID: '1', Status: 'Running', Version: 1 })
  })
})
