import { eventually } from '@integration-host/shared/test-support/eventually'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { describe, expect, it } from 'vitest'
import { type FakeBooks, fakeBooks } from '../../test-support/fake-books.ts'
import { respondWith } from '../../test-support/fake-target.ts'
import {
  bearer,
  type Fixture,
  type FixtureOptions,
  onBackends,
} from '../../test-support/fixture.ts'
import { CHANGE_FEED } from '../change-feed/sweep.ts'
import { defineProcess } from '../step/define-process.ts'
import { defineStep, type Step } from '../step/step.ts'
import { ENTRIES } from './book-entry.ts'
import { EntryPage } from '@integration-host/shared/contracts/company'
import { stepQueue } from '@integration-host/shared/contracts/topology'
import type { TakenObject } from '@integration-host/shared/contracts/operations'

const AMOUNT = 4711.25
const invoiceOf = (step: Pick<Step, 'realm' | 'transactionId'>) => ({
  method: 'POST',
  url: `/v3/company/${step.realm}/invoice`,
  body: {
    DocNumber: step.transactionId,
    PrivateNote: 'for Ada Lovelace',
    Line: [{ Amount: AMOUNT }],
  },
})
const credentialOf = ({ realm }: Pick<Step, 'realm'>) => ({ credential: `ACC-${realm}` })
const idOf = (body: unknown): string => (body as { Invoice: { Id: string } }).Invoice.Id

const bill = defineProcess('Bill')
  .step(
    'create',
    defineStep(
      (step: Step) => step.execute(invoiceOf(step), { ...credentialOf(step), parse: idOf }),
      {
        async confirm(step) {
          const found = await step.find(
            {
              url: `/v3/company/${step.realm}/query`,
              query: { query: `select * from Invoice where DocNumber = '${step.transactionId}'` },
            },
            {
              ...credentialOf(step),
              parse: (body) => {
                const { QueryResponse } = body as { QueryResponse: { Invoice?: { Id: string }[] } }
                return QueryResponse.Invoice?.[0]?.Id ?? null
              },
            },
          )
          return found?.data ? step.complete(found.data) : 'not_done'
        },
      },
    ),
  )
  .step('send', (step) =>
    step.execute(
      { ...invoiceOf(step), body: { Id: step.previous.data, EmailStatus: 'NeedToSend' } },
      credentialOf(step),
    ),
  )
/** A step whose call succeeds, and which then fails. */
const clumsy = defineProcess('Clumsy').step('create', (step: Step) =>
  step.execute(invoiceOf(step), {
    ...credentialOf(step),
    parse: () => {
      throw new Error('not as expected')
    },
  }),
)
const batch = defineProcess('Batch').step('post', async (step: Step) => {
  await step.fetch(
    {
      method: 'POST',
      url: `/v3/company/${step.realm}/batch`,
      body: {
        BatchItemRequest: [
          { bId: 'a', operation: 'create', Customer: { DisplayName: 'Ada' } },
          { bId: 'b', operation: 'delete', Bill: { Id: '9' } },
          { bId: 'c', operation: 'create', Bill: {} },
        ],
      },
    },
    credentialOf(step),
  )
  await step.fetch({ url: `/v3/company/${step.realm}/query` }, credentialOf(step))
  return step.waitFor(3_600_000)
})

/** Tests the entries from the call of a step to the API. All backends must pass these tests. */
export function entriesContract(kind: 'embedded' | 'real'): void {
  describe(`the book of entries on ${kind} backends`, () => {
    const opened = onBackends(
      kind,
      {
        Bill: ['create', 'send'],
        Clumsy: ['create'],
        Batch: ['post'],
        TakeBack: ['look', 'remove'],
      },
      {
        keys: [
          { id: 'reader', scopes: ['transactions:read'], realms: ['43'] },
          { id: 'operator', scopes: ['transactions:read', 'transactions:operate'], realms: ['43'] },
          { id: 'stranger', scopes: ['transactions:read'], realms: ['44'] },
        ],
      },
    )
    const start = async (
      processes: FixtureOptions['processes'] = [bill, clumsy, batch],
      options: Pick<FixtureOptions, 'wrapBus'> = {},
    ): Promise<{ host: Fixture; books: FakeBooks }> => {
      const host = await opened.start({ processes, ...options })
      return { host, books: fakeBooks(host.target, { realm: '42', firstId: 129 }) }
    }
    const read = async (host: Fixture, query = '', key?: string) => {
      const headers = key === undefined ? {} : bearer(key)
      const response = await host.call(`/entries${query}`, { headers })
      expect(response.status).toBe(200)
      return EntryPage.parse(await response.json())
    }

    it('each write of a run is an entry, and the newest of an object is current', async () => {
      const { host } = await start()
      await host.queue('A-1', null, '42')
      await host.reached('A-1', 'Completed')
      const { items, next_cursor } = await read(host, '?realm=42&entity=Invoice&id=129')
      expect(next_cursor).toBeNull()
      const run = { Process: 'Bill', TransactionID: 'A-1', ReplayID: 0 }
      const object = { Realm: '42', Entity: 'Invoice', EntityID: '129' }
      const hash = expect.stringMatching(/^[\da-f]{16}$/)
      expect(items).toMatchObject([
        {
          ...run,
          ...object,
          StepName: 'send',
          Operation: 'update',
          SyncToken: '1',
          State: 'Recorded',
        },
        {
          ...run,
          ...object,
          StepName: 'create',
          Operation: 'create',
          SyncToken: '0',
          State: 'Superseded',
        },
      ])
      expect(items.map(({ Fields }) => Fields)).toEqual([
        { EmailStatus: hash },
        { DocNumber: hash, PrivateNote: hash, Line: hash },
      ])
    })

    it('the queues of the change feed are declared once, however many writes come before they exist', async () => {
      const broker = Promise.withResolvers<void>()
      let declarations = 0
      const wrapBus: FixtureOptions['wrapBus'] = (bus) => ({
        ...bus,
        async declare(topology) {
          if (topology.queues.some(({ name }) => name === stepQueue(CHANGE_FEED, 'read'))) {
            declarations += 1
            await broker.promise
          }
          await bus.declare(topology)
        },
      })
      const { host } = await start([bill], { wrapBus })
      await host.queue('A-1', null, '42')
      await host.reached('A-1', 'Completed')
      broker.resolve()
      expect((await read(host)).items).toHaveLength(2)
      expect(declarations).toBe(1)
    })

    it('an object of a step that fails after its call is an entry', async () => {
      const { host } = await start([clumsy])
      await host.queue('A-1', null, '42')
      expect(await host.reached('A-1', 'Failed')).toMatchObject({ ErrorClass: 'response_invalid' })
      expect((await read(host)).items).toMatchObject([{ EntityID: '129', Operation: 'create' }])
    })

    it('the items of a batch are entries, whatever becomes of the step; items with a fault and reads are none', async () => {
      const { host } = await start([batch])
      const results = [
        { bId: 'a', Customer: { Id: '58', SyncToken: '0', DisplayName: 'Ada' } },
        { bId: 'b', Bill: { Id: '9', status: 'Deleted' } },
        { bId: 'c', Fault: { Error: [{ code: '2020' }] } },
      ]
      host.target.on(
        '/v3/company/42/batch',
        respondWith(200, JSON.stringify({ BatchItemResponse: results })),
      )
      await host.queue('1', null, '42')
      await host.reached('1', 'Retrying')
      const { items } = await read(host, '?transaction=1&process=Batch')
      expect(
        items
          .map(({ Entity, EntityID, Operation }) => `${Operation} ${Entity} ${EntityID}`)
          .toSorted(),
      ).toEqual(['create Customer 58', 'delete Bill 9'])
    })

    it('an object whose response was lost is an entry when confirm finds it, once', async () => {
      const { host, books } = await start()
      let isLost = true
      books.onStored = () => {
        const wasLost = isLost
        isLost = false
        return !wasLost
      }
      await host.queue('A-1', null, '42')
      await host.reached('A-1', 'Completed')
      expect(books.invoices).toHaveLength(1)
      const { items } = await read(host, '?id=129')
      expect(items.map(({ Operation, StepName }) => [Operation, StepName])).toEqual([
        ['update', 'send'],
        ['create', 'create'],
      ])
      expect(items[1]?.Fields).toEqual({})
    })

    it('a key that is bound to a company sees only the entries of this company', async () => {
      const { host } = await start()
      fakeBooks(host.target, { realm: '43' })
      for (const realm of ['42', '43']) await host.queue(`A-${realm}`, null, realm)
      for (const realm of ['42', '43']) await host.reached(`A-${realm}`, 'Completed')
      const { items } = await read(host, '', 'reader')
      expect(items.map(({ Realm }) => Realm)).toEqual(['43', '43'])
      const headers = bearer('reader')
      expect((await host.call('/entries?realm=42', { headers })).status).toBe(403)
      expect((await read(host)).items).toHaveLength(4)
    })

    it('entries are read in pages', async () => {
      const { host } = await start()
      for (const id of ['A-1', 'A-2']) await host.queue(id, null, '42')
      for (const id of ['A-1', 'A-2']) await host.reached(id, 'Completed')
      const seen: string[] = []
      let cursor: string | null = ''
      do {
        const query: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`
        const page: EntryPage = await read(host, `?limit=3${query}`)
        seen.push(...page.items.map(({ EntryID }) => EntryID))
        cursor = page.next_cursor
      } while (cursor !== null)
      expect(new Set(seen).size).toBe(4)
      expect(seen).toHaveLength(4)
    })

    it('a wrong query of entries, or a wrong period of the books, is rejected and names the parameter', async () => {
      const { host } = await start()
      const rejected = async (path: string, parameter: string) => {
        const response = await host.call(path)
        const problem = (await response.json()) as { code: string; detail: string }
        expect([response.status, problem.code], path).toEqual([400, 'invalid_request'])
        expect(JSON.stringify(problem), path).toContain(parameter)
      }
      const long = 'x'.repeat(300)
      for (const [parameter, ...values] of [
        ['realm', '', '4%2F2', long],
        ['entity', '', 'In%20voice', '9Invoice', long],
        ['id', '', '1%202', '%00', 'é', '1'.repeat(21)],
        ['process', '', '%00', 'a%2Fb', long],
        ['transaction', '', '%00', long],
        ['state', '', 'Gone', 'verified'],
        ['since', '', 'yesterday', '2026-13-01T00:00:00Z', '0000-01-01T00:00:00Z'],
        ['limit', '', '0', '501', '-1', '1.5', 'all'],
        ['cursor', 'x', long, '%00'],
      ] as const)
        for (const value of values) await rejected(`/entries?${parameter}=${value}`, parameter)
      await rejected('/entries?ids=1', 'ids')
      await rejected('/entries?realm=42&realm=43', 'realm')
      const since = 'since=2026-10-01T00:00:00Z'
      for (const [query, parameter] of [
        ['', 'since'],
        ['?since=', 'since'],
        ['?since=2026-10', 'since'],
        [`?${since}&${since}`, 'since'],
        [`?${since}&until=2026-10-01T00:00:00Z`, 'until'],
        [`?${since}&until=2026-09-01T00:00:00Z`, 'until'],
        [`?${since}&until=soon`, 'until'],
        [`?${since}&month=2026-10`, 'month'],
      ] as const)
        await rejected(`/realms/42/books${query}`, parameter)
      await rejected(`/realms/4%2F2/books?${since}`, 'realm')
      const wide = 'since=0001-01-01T00:00:00Z&until=9999-12-31T23:59:59Z'
      expect(await (await host.call(`/realms/42/books?${wide}`)).json()).toMatchObject({
        Ready: true,
        Sentence: 'ready to close: no entry is verified',
      })
    })

    it('a key that is bound to a company asks for no books of another one, and takes back only objects of its own', async () => {
      const { host } = await start()
      const other = fakeBooks(host.target, { realm: '43', firstId: 7 })
      await host.queue('A-1', null, '42')
      await host.queue('A-2', null, '43')
      for (const id of ['A-1', 'A-2']) await host.reached(id, 'Completed')
      const period = 'books?since=2026-10-01T00:00:00Z'
      const statusOf = async (path: string, key: string, body?: object) =>
        (
          await host.call(path, {
            headers: { ...bearer(key), 'Content-Type': 'application/json' },
            ...(body !== undefined && { method: 'POST', body: JSON.stringify(body) }),
          })
        ).status
      expect(await statusOf(`/realms/42/${period}`, 'reader')).toBe(403)
      expect(await statusOf(`/realms/43/${period}`, 'reader')).toBe(200)
      const takeBack = {
        Action: 'take-back',
        Process: 'Bill',
        Reason: 'as the test wants',
        DryRun: true,
      }
      const foreign = { ...takeBack, Filter: { realm: ['42'] } }
      expect(await statusOf('/operations', 'reader', { ...takeBack, Filter: {} })).toBe(403)
      expect(await statusOf('/operations', 'operator', foreign)).toBe(403)
      const both = { ...takeBack, Ids: ['A-1', 'A-2'] }
      const response = await host.call('/operations', postJson(both, bearer('operator')))
      expect(response.status).toBe(202)
      const { ID } = (await response.json()) as { ID: string }
      const objects = await eventually(async () => {
        const list = await host.call(`/operations/${ID}/objects`, { headers: bearer('operator') })
        const { items } = (await list.json()) as { items: TakenObject[] }
        expect(items.map(({ Realm, Entity, EntityID }) => [Realm, Entity, EntityID])).toEqual([
          ['43', 'Invoice', other.invoices[0]?.Id],
        ])
        return items
      })
      expect(objects).toHaveLength(1)
      await eventually(async () =>
        expect(await (await host.call(`/operations/${ID}`)).json()).toMatchObject({
          FailedByCode: { forbidden: 1 },
        }),
      )
      for (const path of [`/operations/${ID}`, `/operations/${ID}/objects`])
        expect(await statusOf(path, 'stranger')).toBe(403)
    })

    it('no amount, name or memo is in the table, in the log, or in a response', async () => {
      const { host } = await start()
      await host.queue('A-1', null, '42')
      await host.reached('A-1', 'Completed')
      const rows = JSON.stringify(await host.source.records(ENTRIES).rows())
      for (const text of [rows, JSON.stringify(host.log), JSON.stringify(await read(host))])
        for (const value of [String(AMOUNT), 'Lovelace']) expect(text).not.toContain(value)
    })
  })
}
