import type { DeadLetterPage, DeadLetterView } from '@integration-host/shared/contracts/operations'
import {
  DEAD_EXCHANGE,
  deadQueue,
  stepRoutingKey,
  STEPS_EXCHANGE,
  ladder,
  processTopology,
} from '@integration-host/shared/contracts/topology'
import { IntegrationError } from '@integration-host/shared/errors'
import type { OutgoingMessage } from '@integration-host/shared/messaging/message-bus'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { bearer, type Fixture, onBackends } from '../../test-support/fixture.ts'
import { processOf } from '../../test-support/process-of.ts'
import type { Step } from '../step/step.ts'
import { LETTERS, type NewDeadLetter } from './dead-letter-store.ts'
import { readActions } from '../run/action.ts'

const keys = [
  { id: 'reader', scopes: ['transactions:read'], realms: ['42'] },
  { id: 'operator', scopes: ['transactions:read', 'transactions:operate'], realms: ['42'] },
]
const outline = { name: 'Sale', steps: ['sell'] as [string, ...string[]] }

/** Tests of dead letters, from the broker to the API. All backends must pass these tests. */
export function deadLettersContract(kind: 'embedded' | 'real'): void {
  describe(`dead letters on ${kind} backends`, () => {
    const sale = processOf('Sale', { steps: { sell: (step: Step) => step.complete() } })
    const opened = onBackends(kind, { Sale: ['sell'], Removed: [] }, { processes: [sale], keys })
    const { start } = opened
    const dead = (host: Fixture, message: Partial<OutgoingMessage>): Promise<void> =>
      host.bus.publish({
        exchange: DEAD_EXCHANGE,
        routingKey: 'Sale',
        messageId: crypto.randomUUID(),
        type: 'other',
        body: 'not a step message',
        mandatory: true,
        ...message,
      })
    const stepMessage = (TransactionID: string, members: object = {}) => ({
      v: 1,
      Process: 'Sale',
      TransactionID,
      ReplayID: 0,
      Step: 'sell',
      Version: 0,
      ...members,
    })
    const at = '/processes/Sale/dead-letters'
    const list = async (host: Fixture, query = '', init: RequestInit = {}) => {
      const response = await host.call(at + query, init)
      expect(response.status).toBe(200)
      return (await response.json()) as DeadLetterPage
    }
    const stored = async (host: Fixture, count: number): Promise<readonly DeadLetterView[]> => {
      await eventually(async () => expect((await list(host)).items).toHaveLength(count))
      await eventually(async () =>
        expect(await host.bus.depth(deadQueue('Sale'))).toMatchObject({ ready: 0 }),
      )
      return (await list(host)).items
    }
    const call = async (host: Fixture, method: string, path: string, init: RequestInit = {}) => {
      const response = await host.call(at + path, { method, ...init })
      const text = await response.text()
      const body = text === '' ? null : (JSON.parse(text) as Record<string, unknown>)
      return { status: response.status, body }
    }
    const because = (Reason: string): RequestInit => ({ body: JSON.stringify({ Reason }) })
    const as = (id: string): RequestInit => ({ headers: bearer(id) })

    it('a message that a worker or the broker dead-letters is stored with its reason and its run, and removed from the queue', async () => {
      const host = await start()
      await host.bus.publish({
        exchange: STEPS_EXCHANGE,
        routingKey: stepRoutingKey('Sale', 'sell'),
        messageId: 'unknown',
        type: 'step',
        body: stepMessage('unknown'),
        mandatory: true,
      })
      await dead(host, {
        messageId: 'rejected',
        body: stepMessage('66', { ReplayID: 3 }),
        headers: { 'x-first-death-reason': 'delivery_limit' },
      })
      const letters = (await stored(host, 2)).toSorted((a, b) => (a.Reason < b.Reason ? -1 : 1))
      expect(letters).toMatchObject([
        {
          Process: 'Sale',
          MessageID: expect.stringMatching(/^rejected#[0-9a-f]{16}$/),
          Reason: 'delivery_limit',
          TransactionID: '66',
          ReplayID: 3,
          StepName: 'sell',
          Encoding: 'text',
        },
        {
          MessageID: expect.stringMatching(/^unknown#[0-9a-f]{16}$/),
          Reason: 'unknown_transaction',
          TransactionID: 'unknown',
          ReplayID: 0,
        },
      ])
      expect(JSON.parse(letters[1]?.Content ?? '')).toEqual(stepMessage('unknown'))
    })

    it('the list of dead letters has 1 KiB of each content; the response for one dead letter has 64 KiB', async () => {
      const host = await start()
      const text = `${'x'.repeat(1_023)}€${'y'.repeat(100_000)}`
      await dead(host, { body: Buffer.from(text) })
      const [long] = await stored(host, 1)
      expect(long).toMatchObject({
        Content: 'x'.repeat(1_023),
        Encoding: 'text',
        ContentBytes: Buffer.byteLength(text),
        TransactionID: null,
      })
      const one = await call(host, 'GET', `/${long?.ID}`)
      expect(one.body).toMatchObject({ Content: text.slice(0, 65_536 - 2), Encoding: 'text' })
      const bytes = Buffer.from([0xff, 0, 1])
      await dead(host, { body: bytes })
      expect((await stored(host, 2))[0]).toMatchObject({
        Content: bytes.toString('base64'),
        Encoding: 'base64',
        ContentBytes: 3,
      })
    })

    it('a dead letter that an earlier version of the coordinator published is stored with the content of its message', async () => {
      const host = await start()
      await dead(host, {
        messageId: 'dead/1',
        type: 'dead',
        headers: { reason: 'malformed', 'original-message-id': 'foreign' },
        body: { Reason: 'malformed', Bytes: 70_000, Content: 'not json' },
      })
      expect(await stored(host, 1)).toMatchObject([
        {
          MessageID: expect.stringMatching(/^foreign#/),
          Reason: 'malformed',
          Content: 'not json',
          ContentBytes: 70_000,
        },
      ])
    })

    it('a repeated message is stored once, even without an id; different contents with the same id are all stored', async () => {
      const host = await start()
      for (const message of [
        { messageId: 'a', body: 'one' },
        { messageId: 'a', body: 'one' },
        { messageId: 'a', body: 'two' },
        { messageId: '', body: 'three' },
        { messageId: '', body: 'three' },
        { messageId: 'control\u0000character', body: 'four', headers: { reason: 'x\u0000y' } },
      ])
        await dead(host, message)
      await eventually(async () =>
        expect(await host.bus.depth(deadQueue('Sale'))).toMatchObject({ ready: 0 }),
      )
      const contents = (await stored(host, 4)).map(({ Content }) => Content)
      expect(contents.toSorted()).toEqual(['"four"', '"one"', '"three"', '"two"'])
    })

    it('dead letters are listed page by page, newest first, and counted by /integrity', async () => {
      const host = await start()
      for (const body of ['1', '2', '3', '4', '5']) {
        await dead(host, { body })
        await stored(host, Number(body))
      }
      const first = await list(host, '?limit=2')
      const second = await list(host, `?limit=2&cursor=${first.next_cursor}`)
      const third = await list(host, `?limit=2&cursor=${second.next_cursor}`)
      const shown = [first, second, third].map(({ items }) => items.map(({ Content }) => Content))
      expect(shown).toEqual([['"5"', '"4"'], ['"3"', '"2"'], ['"1"']])
      expect(third.next_cursor).toBeNull()
      const integrity = await (await host.call('/integrity')).json()
      expect(integrity).toMatchObject({ ok: true, deadLetters: { Sale: 5 } })
    })

    it('requeueing a dead letter publishes the due step of its run again, deletes the dead letter, and is recorded in the action log', async () => {
      // The sweeper does not run during this test, so only the requeued message can start the run.
      const host = await start({ env: { LOCAL_PULL_SECONDS: '3600' } })
      await host.source.queue(outline, [{ TransactionID: '66', InitialData: 1, Realm: '42' }])
      await dead(host, { body: stepMessage('66', { Version: 7 }) })
      const [letter] = await stored(host, 1)
      const requeue = () => call(host, 'POST', `/${letter?.ID}/requeue`, because('step is back'))
      expect(await requeue()).toMatchObject({ status: 202, body: { TransactionID: '66' } })
      await host.reached('66', 'Completed')
      expect((await list(host)).items).toEqual([])
      expect(await requeue()).toMatchObject({
        status: 404,
        body: { code: 'dead_letter_not_found' },
      })
      expect(await readActions(host.source, { limit: 10 })).toMatchObject([
        {
          Action: 'requeue_dead_letter',
          TransactionID: '66',
          ReplayID: 0,
          Realm: '42',
          Reason: 'step is back',
          Outcome: 'done',
        },
        { Action: 'read_dead_letters' },
      ])
    })

    it.each([
      ['names no run', 'not json', 'dead_letter_without_run', null],
      ['names a run that does not exist', stepMessage('none'), 'dead_letter_without_run', null],
      [
        'names a run of another process',
        stepMessage('66', { Process: 'B' }),
        'dead_letter_without_run',
        null,
      ],
      ['names a run that is over', stepMessage('66'), 'transaction_not_active', '66'],
    ])(
      'a dead letter that %s is kept when its requeueing is rejected, and the rejection is recorded',
      async (_, body, code, TransactionID) => {
        const host = await start({ env: { LOCAL_PULL_SECONDS: '3600' } })
        await host.source.queue(outline, [{ TransactionID: '66', InitialData: 1 }])
        await host.source.operate('cancel', { name: 'Sale' }, '66', null, anAct)
        await dead(host, { body })
        const [letter] = await stored(host, 1)
        expect(await call(host, 'POST', `/${letter?.ID}/requeue`)).toMatchObject({
          status: 409,
          body: { code },
        })
        expect((await list(host)).items).toHaveLength(1)
        const [entry] = await readActions(host.source, { limit: 1 })
        expect(entry).toMatchObject({
          Action: 'requeue_dead_letter',
          TransactionID,
          Outcome: code,
        })
      },
    )

    it('the deletion of one or all dead letters of a process is recorded in the action log with its reason', async () => {
      const host = await start()
      for (const body of ['1', '2', '3']) await dead(host, { body })
      const [letter] = await stored(host, 3)
      const one = () => call(host, 'DELETE', `/${letter?.ID}`, because('a test message'))
      expect((await one()).status).toBe(204)
      expect(await one()).toMatchObject({ status: 404, body: { code: 'dead_letter_not_found' } })
      expect(await call(host, 'DELETE', '', because('all read'))).toEqual({
        status: 200,
        body: { Deleted: 2 },
      })
      expect(await readActions(host.source, { limit: 10 })).toMatchObject([
        { Action: 'delete_dead_letters', Reason: 'all read' },
        { Action: 'delete_dead_letter', Reason: 'a test message' },
        { Action: 'read_dead_letters' },
      ])
    })

    it('a service key that is bound to realms can read and change a dead letter only if its run has one of these realms', async () => {
      const host = await start({ env: { LOCAL_PULL_SECONDS: '3600' } })
      await host.source.queue(outline, [
        { TransactionID: 'own', InitialData: 1, Realm: '42' },
        { TransactionID: 'foreign', InitialData: 1, Realm: '43' },
      ])
      for (const id of ['own', 'foreign', 'none']) await dead(host, { body: stepMessage(id) })
      await dead(host, { body: 'not json' })
      const letters = await stored(host, 4)
      const { items } = await list(host, '', as('reader'))
      expect(items.map(({ TransactionID }) => TransactionID)).toEqual(['own'])
      for (const { ID, TransactionID } of letters) {
        const expected = TransactionID === 'own' ? 200 : 403
        expect((await call(host, 'GET', `/${ID}`, as('reader'))).status).toBe(expected)
        for (const [method, path] of [
          ['DELETE', ''],
          ['POST', '/requeue'],
        ] as const) {
          expect((await call(host, method, `/${ID}${path}`, as('reader'))).status).toBe(403)
          if (TransactionID !== 'own')
            expect((await call(host, method, `/${ID}${path}`, as('operator'))).status).toBe(403)
        }
      }
      expect((await call(host, 'DELETE', '', as('operator'))).status).toBe(403)
      expect((await list(host)).items).toHaveLength(4)
      const own = letters.find(({ TransactionID }) => TransactionID === 'own')
      expect((await call(host, 'DELETE', `/${own?.ID}`, as('operator'))).status).toBe(204)
    })

    it('a request with a parameter that is not valid is rejected with 400, and the error names it', async () => {
      const host = await start()
      for (const [method, path, name] of [
        ['GET', '?limit=0', 'limit'],
        ['GET', '?limit=501', 'limit'],
        ['GET', '?cursor=x', 'cursor'],
        ['GET', '?cursor=7', 'cursor'],
        ['GET', '?before=1', 'before'],
        ['GET', '/x', 'id'],
        ['GET', '/1?whole=1', 'whole'],
        ['DELETE', '?id=1', 'id'],
        ['DELETE', '/0', 'id'],
        ['POST', '/1/requeue?now=1', 'now'],
      ] as const) {
        const { status, body } = await call(host, method, path)
        expect([method, path, status]).toEqual([method, path, 400])
        expect(JSON.stringify(body)).toContain(name)
      }
    })

    it('a dead-letter request with an unknown body member, an If-Match header or an unknown process is rejected', async () => {
      const host = await start()
      await dead(host, {})
      const [letter] = await stored(host, 1)
      const bad = { body: JSON.stringify({ Why: 'x' }) }
      expect((await call(host, 'DELETE', '', bad)).status).toBe(400)
      const matching = { headers: { 'If-Match': '"1"' } }
      expect((await call(host, 'DELETE', `/${letter?.ID}`, matching)).status).toBe(400)
      expect((await host.call('/processes/Nobody/dead-letters')).status).toBe(404)
      expect((await list(host)).items).toHaveLength(1)
    })

    it('no dead letter is consumed while the store is unavailable, and afterwards each is stored once', async () => {
      let isUnavailable = false
      const tried = new Set<string>()
      const host = await start({
        wrapSource: (source) => ({
          ...source,
          records(table) {
            const records = source.records(table)
            if (table.table !== LETTERS.table) return records
            return {
              ...records,
              async replace(before, after) {
                if (isUnavailable) tried.add((after as unknown as NewDeadLetter).MessageID)
                if (isUnavailable)
                  throw new IntegrationError('store_unavailable', 'the store is unavailable')
                return records.replace(before, after)
              },
              async count(which) {
                if (isUnavailable)
                  throw new IntegrationError('store_unavailable', 'the store is unavailable')
                return records.count(which)
              },
            }
          },
        }),
      })
      await eventually(async () =>
        expect(await host.bus.depth(deadQueue('Sale'))).toEqual({ ready: 0, consumers: 1 }),
      )
      isUnavailable = true
      for (let n = 0; n < 60; n += 1) await dead(host, { body: `${n}` })
      // Only the messages in flight are retried. All others stay in the queue.
      await eventually(async () => {
        const { ready } = (await host.bus.depth(deadQueue('Sale'))) ?? {}
        expect(ready).toBe(60 - tried.size)
        expect(ready).toBeGreaterThanOrEqual(40)
      })
      isUnavailable = false
      await eventually(async () => expect((await list(host, '?limit=100')).items).toHaveLength(60))
      await eventually(async () =>
        expect(await host.bus.depth(deadQueue('Sale'))).toEqual({ ready: 0, consumers: 1 }),
      )
    })

    it('while the table of dead letters is full, further dead letters stay in the queue', async () => {
      const host = await start({
        wrapSource: (source) => ({
          ...source,
          records: (table) => ({ ...source.records(table), capacity: 5 }),
        }),
      })
      for (let n = 0; n < 60; n += 1) await dead(host, { body: `${n}` })
      await eventually(() =>
        expect(host.log.map(({ msg }) => msg)).toContain(
          'the table of dead letters is full; further dead letters stay in the queue',
        ),
      )
      await eventually(async () => {
        expect((await host.bus.depth(deadQueue('Sale')))?.ready).toBeGreaterThan(0)
        const integrity = await (await host.call('/integrity')).json()
        expect(integrity).toMatchObject({ ok: true, deadLetters: { Sale: 60 } })
      })
      let deleted = 0
      await eventually(async () => {
        deleted += Number((await call(host, 'DELETE', '', because('read'))).body?.['Deleted'])
        expect(deleted).toBe(60)
      })
    })

    it('the coordinator also consumes an existing dead-letter queue of a process that is no longer loaded', async () => {
      const bus = opened.use(await opened.backends().openBus())
      await bus.ready(AbortSignal.timeout(60_000))
      await bus.declare(ladder)
      await bus.declare(processTopology('Removed', []))
      const source = opened.use(await opened.backends().openSource())
      await source.queue({ name: 'Removed', steps: ['only'] }, [
        { TransactionID: '1', InitialData: 1 },
      ])
      const host = await start({ bus, source })
      const body = stepMessage('1', { Process: 'Removed', Step: 'only' })
      await dead(host, { routingKey: 'Removed', body })
      const path = '/processes/Removed/dead-letters'
      const items = async () => (await (await host.call(path)).json()) as DeadLetterPage
      await eventually(async () =>
        expect((await items()).items).toMatchObject([{ Process: 'Removed', TransactionID: '1' }]),
      )
      const [letter] = (await items()).items
      const requeue = await host.call(`${path}/${letter?.ID}/requeue`, { method: 'POST' })
      expect([requeue.status, await requeue.json()]).toMatchObject([
        404,
        { code: 'process_not_found' },
      ])
    })
  })
}
