import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { type Act, readActions } from '../run/action.ts'
import type { ProcessOutline, TransactionSource } from '../run/transaction-source.ts'
import {
  createDeadLetterStore,
  type DeadLetter,
  type DeadLetterStore,
  type NewDeadLetter,
} from './dead-letter-store.ts'

const process: ProcessOutline = { name: 'OrderProcess', steps: ['order', 'report', 'csv'] }
const ada: Act = {
  by: { keyId: 'console', person: 'ada@example.com' },
  reason: 'the publisher is fixed',
  ifVersion: null,
}
const page = { limit: 100, contentBytes: 1_024 }

const letter = (MessageID: string, members: Partial<NewDeadLetter> = {}): NewDeadLetter => ({
  Process: process.name,
  MessageID,
  Reason: 'malformed',
  TransactionID: null,
  ReplayID: null,
  StepName: null,
  Content: Buffer.from('not json'),
  ContentBytes: 8,
  ...members,
})
const ofRun = (MessageID: string, TransactionID: string): NewDeadLetter =>
  letter(MessageID, { TransactionID, ReplayID: 0, StepName: 'order', Reason: 'unknown_step' })

/** Tests the store of dead letters; it must work on both the memory and the PostgreSQL source. */
export function deadLetterContract(name: string, open: () => Promise<TransactionSource>): void {
  describe(`${name} as a store of dead letters`, () => {
    let source: TransactionSource
    let store: DeadLetterStore
    beforeEach(async () => {
      source = await open()
      store = createDeadLetterStore(source)
    })
    afterEach(() => source[Symbol.asyncDispose]())

    const list = (filter = {}) => store.list(process.name, { ...page, ...filter })
    const ids = async (filter = {}) => (await list(filter)).map(({ MessageID }) => MessageID)
    const log = () => readActions(source, { limit: 100 })

    it('a dead letter is returned with its reason, its time, its run, the realm of the run, and the beginning of its content', async () => {
      await source.queue(process, [{ TransactionID: '66', InitialData: 1, Realm: '42' }])
      const startedAt = Date.now()
      const bytes = Buffer.from([0, 0xff, 1, 2])
      await store.add(letter('a', { Content: bytes, ContentBytes: 100_000 }))
      await store.add(ofRun('b', '66'))
      await store.add(ofRun('c', 'unknown'))
      const [c, b, a] = await list({ contentBytes: 2 })
      expect(a).toEqual({
        ...letter('a', { Content: bytes.subarray(0, 2), ContentBytes: 100_000 }),
        ID: expect.any(Number),
        At: expect.any(String),
        isOfTransaction: false,
        Realm: null,
      })
      expect(b).toMatchObject({
        Reason: 'unknown_step',
        TransactionID: '66',
        ReplayID: 0,
        StepName: 'order',
        isOfTransaction: true,
        Realm: '42',
      })
      expect(c).toMatchObject({ TransactionID: 'unknown', isOfTransaction: false, Realm: null })
      expect(a?.At).toBe(new Date(a?.At ?? '').toISOString())
      expect(Math.abs(Date.parse(a?.At ?? '') - startedAt)).toBeLessThan(60_000)
      const whole = await store.find(process.name, a?.ID ?? 0)
      expect(whole).toEqual({ ...a, Content: bytes })
      expect(await store.find('Other', a?.ID ?? 0)).toBeNull()
    })

    it('a message that is delivered several times, even concurrently, is stored once for each process', async () => {
      await Promise.all(Array.from({ length: 20 }, () => store.add(letter('a'))))
      await store.add(letter('a', { Reason: 'another' }))
      await store.add(letter('a', { Process: 'Other' }))
      expect(await list()).toMatchObject([{ MessageID: 'a', Reason: 'malformed' }])
      expect(await store.counts()).toEqual(
        new Map([
          [process.name, 1],
          ['Other', 1],
        ]),
      )
    })

    it('dead letters are read page by page, newest first', async () => {
      for (const id of ['a', 'b', 'c', 'd', 'e']) await store.add(letter(id))
      const first = await list({ limit: 2 })
      expect(first.map(({ MessageID }) => MessageID)).toEqual(['e', 'd'])
      expect(await ids({ before: first.at(-1)?.ID })).toEqual(['c', 'b', 'a'])
    })

    it('the removal of a dead letter is recorded as an action, and the ID of the dead letter is not used again', async () => {
      await source.queue(process, [{ TransactionID: '66', InitialData: 1, Realm: '42' }])
      await store.add(letter('a'))
      await store.add(ofRun('b', '66'))
      const [b, a] = await list()
      expect(await store.remove(b as DeadLetter, 'requeue_dead_letter', ada)).toBe(true)
      expect(await store.remove(a as DeadLetter, 'delete_dead_letter', anAct)).toBe(true)
      expect(await store.remove(a as DeadLetter, 'delete_dead_letter', anAct)).toBe(false)
      expect(await log()).toMatchObject([
        { Action: 'delete_dead_letter', TransactionID: null, ReplayID: null, Realm: null },
        {
          Action: 'requeue_dead_letter',
          KeyID: 'console',
          Person: 'ada@example.com',
          Process: process.name,
          TransactionID: '66',
          ReplayID: 0,
          Realm: '42',
          Reason: 'the publisher is fixed',
          Outcome: 'done',
        },
      ])
      expect(await log()).toHaveLength(2)
      await store.add(letter('b'))
      expect((await list())[0]?.ID).toBeGreaterThan(b?.ID ?? Infinity)
    })

    it('the action log entry for a removed dead letter omits a transaction that does not exist, because its realm is unknown', async () => {
      await store.add(ofRun('a', 'unknown'))
      const [a] = await list()
      await store.remove(a as DeadLetter, 'delete_dead_letter', ada)
      expect(await log()).toMatchObject([{ TransactionID: null, ReplayID: null, Realm: null }])
    })

    it('of several concurrent removals of a dead letter, only one succeeds and is recorded', async () => {
      await store.add(letter('a'))
      const [a] = await list()
      const results = await Promise.all(
        Array.from({ length: 10 }, () => store.remove(a as DeadLetter, 'delete_dead_letter', ada)),
      )
      expect(results.filter(Boolean)).toHaveLength(1)
      expect(await log()).toHaveLength(1)
    })

    it('the removal of all dead letters of a process records one entry, and none if there are no dead letters', async () => {
      const removeAll = () => store.removeAll(process.name, ada)
      for (const id of ['a', 'b', 'c']) await store.add(letter(id))
      await store.add(letter('a', { Process: 'Other' }))
      expect(await removeAll()).toBe(3)
      expect(await removeAll()).toBe(0)
      expect(await log()).toMatchObject([
        { Action: 'delete_dead_letters', Process: process.name, TransactionID: null },
      ])
      expect(await store.counts()).toEqual(new Map([['Other', 1]]))
    })
  })
}
