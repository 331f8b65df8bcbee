import { eventually, until } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  bearer,
  type Fixture,
  openBackends,
  startEmbedded,
  startFixture,
  type TestKey,
} from '../../test-support/fixture.ts'
import { defineProcess } from '../step/define-process.ts'
import { outlineOf } from '../step/definition.ts'

const keys: readonly TestKey[] = [
  {
    id: 'console',
    scopes: ['transactions:read', 'transactions:operate', 'act-for'],
  },
  { id: 'company-43', scopes: ['transactions:read'], realms: ['43'] },
]

let host: Fixture
beforeAll(async () => {
  host = await startEmbedded({ keys })
})
afterAll(() => host[Symbol.asyncDispose]())

const by = (id: string) => bearer(id)
const act = async (action: string, body = {}) => {
  const headers = { ...by('console'), 'Acting-For': 'ada@example.com' }
  const init = { method: 'POST', headers, body: JSON.stringify(body) }
  return (await host.call(`/processes/OrderProcess/${action}`, init)).json()
}

describe('the versions of a process', () => {
  it('GET /processes shows the version of a process, its deadline, and the unfinished runs of each version', async () => {
    const process = (version: string) =>
      defineProcess('Sale', { version, deadlineSeconds: 3_600 }).step('wait', (step) =>
        step.waitFor(3_600_000),
      )
    await using own = await openBackends('embedded')
    await using source = await own.openSource()
    const outline = { ...outlineOf(process('2')), version: '1' }
    const transactions = ['1', '2'].map((TransactionID) => ({ TransactionID, InitialData: 1 }))
    await source.queue(outline, transactions)
    await using other = await startFixture(own, {
      keys,
      processes: [process('2')],
      source,
    })
    const seenBy = async (id: string) =>
      (await (await other.call('/processes/Sale', { headers: by(id) })).json()) as {
        readonly Versions: { readonly Items: unknown } | null
      }
    await other.queue('3')
    await until(async () => (await seenBy('console')).Versions !== null)
    await eventually(async () =>
      expect(await seenBy('console')).toMatchObject({
        Version: '2',
        DeadlineSeconds: 3_600,
        Versions: {
          At: expect.stringMatching(/Z$/),
          Items: [
            { Version: '2', Unfinished: 1 },
            { Version: '1', Unfinished: 2 },
          ],
          IsLowerBound: false,
        },
      }),
    )
    expect(await seenBy('company-43')).toMatchObject({ Version: '2', Versions: null })
    const found = await other.call('/processes/Sale/transactions?version=1&version=3')
    const { items } = (await found.json()) as { items: { TransactionID: string }[] }
    expect(items.map(({ TransactionID }) => TransactionID).toSorted()).toEqual(['1', '2'])
    expect((await other.call('/transactions?version=a%20b')).status).toBe(400)
  })
})

describe('a paused process', () => {
  it('a paused process shows when, by whom and why it was paused; a key of one company sees only the time', async () => {
    const why = { PausedBy: 'ada@example.com', Reason: 'the ERP is down' }
    const paused = await act('pause', { Reason: why.Reason })
    expect(paused).toMatchObject({ Paused: true, PausedAt: expect.any(String), ...why })
    const seenBy = async (id: string) => (await host.call('/processes', { headers: by(id) })).json()
    const { PausedAt } = paused as { PausedAt: string }
    expect(await seenBy('console')).toMatchObject({ items: [{ PausedAt, ...why }] })
    expect(await seenBy('company-43')).toMatchObject({
      items: [{ Paused: true, PausedAt, PausedBy: null, Reason: null }],
    })
    expect(await act('resume')).toMatchObject({ Paused: false, PausedAt: null, Reason: null })
  })
})
