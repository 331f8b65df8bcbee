import type { ActionView } from '@integration-host/shared/contracts/operations'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  bearer,
  type Fixture,
  keyOf,
  serviceKey,
  startEmbedded,
  type TestKey,
} from '../../test-support/fixture.ts'
import { IntegrationError } from '@integration-host/shared/errors'
import { createDeadLetterStore } from '../dead-letter/dead-letter-store.ts'
import { ACTIONS, type ActionWithoutChange } from '../run/action.ts'
import { createReadLog, READS_PER_WINDOW } from './read-log.ts'

const run = '/processes/OrderProcess/transactions/r1'
const letters = '/processes/OrderProcess/dead-letters'
const entries: readonly TestKey[] = [
  { id: 'erp', scopes: ['transactions:read'] },
  { id: 'console', scopes: ['transactions:read', 'act-for'] },
  { id: 'unlucky', scopes: ['transactions:read'] },
  { id: 'other-company', scopes: ['transactions:read'], realms: ['43'] },
  { id: 'auditor', scopes: ['audit:read'], realms: ['42'] },
]

let host: Fixture
let isStoreDown = false
beforeAll(async () => {
  host = await startEmbedded({
    keys: entries,
    wrapSource: (real) => ({
      ...real,
      records(kind) {
        const records = real.records(kind)
        return {
          ...records,
          async replace(...args) {
            if (isStoreDown && kind.table === ACTIONS.table)
              throw new IntegrationError('store_unavailable', 'down')
            return records.replace(...args)
          },
        }
      },
    }),
  })
  await host.queue('r1', { secret: 'data' }, '42')
  await host.reached('r1', 'Completed')
  await createDeadLetterStore(host.source).add({
    Process: 'OrderProcess',
    MessageID: 'm1',
    Reason: 'not JSON',
    TransactionID: null,
    ReplayID: null,
    StepName: null,
    Content: Buffer.from('business data'),
    ContentBytes: 13,
  })
})
afterAll(() => host[Symbol.asyncDispose]())

const get = async (path: string, id: string, person?: string) => {
  const response = await host.call(path, {
    headers: {
      ...bearer(id),
      ...(person !== undefined && { 'Acting-For': person }),
    },
  })
  return [response.status, await response.text()] as const
}
/** Returns the entries that `act` causes, the oldest first, without number and time. */
async function entriesOf(act: () => Promise<unknown>): Promise<Omit<ActionView, 'ID' | 'At'>[]> {
  const before = await newest()
  await act()
  const after = await newest()
  return after
    .slice(0, after.findIndex(({ ID }) => ID === before[0]?.ID) >>> 0)
    .toReversed()
    .map(({ ID: _id, At: _at, ...entry }) => entry)
}
async function newest(key = serviceKey): Promise<readonly ActionView[]> {
  const headers = { Authorization: `Bearer ${key}` }
  const response = await host.call('/actions?limit=500', { headers })
  return ((await response.json()) as { items: ActionView[] }).items
}
const byErp = { KeyID: 'erp', Person: null, Outcome: 'done', OperationID: null }
const byAda = { ...byErp, KeyID: 'console', Person: 'ada@example.com' }
const nothing = { TransactionID: null, ReplayID: null, Realm: null }
const ofRun = { Process: 'OrderProcess', TransactionID: 'r1', ReplayID: 0, Realm: '42' }

describe('reads of data in the action log', () => {
  it('an export has one entry with its filter, which is committed before the first run is sent', async () => {
    const since = '2026-01-01T00:00:00Z'
    const recorded = await entriesOf(async () => {
      await get('/transactions/export', 'erp')
      await get(`/transactions/export?process=OrderProcess&since=${since}`, 'erp')
    })
    expect(recorded).toEqual([
      { ...byErp, ...nothing, Action: 'export', Process: '*', Reason: null },
      {
        ...byErp,
        ...nothing,
        Action: 'export',
        Process: 'OrderProcess',
        Reason: `since=${since}`,
      },
    ])
  })

  it('the data that a person reads has an entry, but its overview and the reads of an application have none', async () => {
    const recorded = await entriesOf(async () => {
      await get(run, 'erp')
      await get('/transactions', 'erp')
      await get(`${run}?bodies=omit`, 'console', 'ada@example.com')
      await get(`${run}?attempts=0`, 'console', 'ada@example.com')
    })
    const Action = 'read_data'
    expect(recorded).toEqual([{ ...byAda, ...ofRun, Action, Reason: null }])
  })

  it('the stored response of a step has an entry for every key, unless it was refused', async () => {
    const recorded = await entriesOf(async () => {
      expect((await get(`${run}/items/order/body`, 'erp'))[0]).toBe(200)
      expect((await get(`${run}/items/unknown/body`, 'erp'))[0]).toBe(404)
      expect((await get(`${run}/items/order/body`, 'other-company'))[0]).toBe(403)
    })
    const what = { ...ofRun, ReplayID: null, Action: 'read_data', Reason: 'response of order' }
    expect(recorded).toEqual([{ ...byErp, ...what }])
  })

  it('the list of dead letters and the content of one have entries', async () => {
    const recorded = await entriesOf(async () => {
      const [, list] = await get(letters, 'console', 'ada@example.com')
      expect(list).toContain('business data')
      await get(`${letters}/1`, 'erp')
      await get(`${letters}/99`, 'erp')
      await get('/processes/OrderProcess/dead-letters?limit=1', 'other-company') // sees none
    })
    expect(recorded).toEqual([
      { ...byAda, ...nothing, Process: 'OrderProcess', Action: 'read_dead_letters', Reason: null },
      {
        ...byErp,
        ...nothing,
        Process: 'OrderProcess',
        Action: 'read_dead_letter',
        Reason: 'dead letter 1',
      },
    ])
  })

  it('if the entry cannot be committed, no data is sent, and the next read is recorded', async () => {
    isStoreDown = true
    for (const path of ['/transactions/export', `${run}/items/order/body`, `${letters}/1`]) {
      const [status, body] = await get(path, 'unlucky')
      expect([status, JSON.parse(body)]).toMatchObject([503, { code: 'store_unavailable' }])
    }
    isStoreDown = false
    const recorded = await entriesOf(() => get(`${letters}/1`, 'unlucky'))
    expect(recorded).toMatchObject([{ KeyID: 'unlucky', Action: 'read_dead_letter' }])
  })

  it('a key that is bound to a company sees the reads of its runs, but not the exports', async () => {
    const seen = await newest(keyOf('auditor'))
    expect(new Set(seen.map(({ Action }) => Action))).toContain('read_data')
    expect(seen.every(({ Realm }) => Realm === '42')).toBe(true)
  })
})

describe('the entries of many reads', () => {
  const read = { kind: 'read_data', process: 'p', transactionId: '1', filter: null } as const
  const open = () => {
    const actions: ActionWithoutChange[] = []
    const clock = { now: 600_000 }
    const recordRead = createReadLog({
      record: async (action) => void actions.push(action),
      now: () => clock.now,
    })
    return { actions, clock, recordRead }
  }
  const by = (person: string | null, keyId = 'console') => ({ keyId, person })

  it('equal reads have one entry within ten minutes, for each person and key', async () => {
    const { actions, clock, recordRead } = open()
    for (const person of ['ben', 'ben', 'cleo', 'ben']) await recordRead(by(person), read)
    await recordRead(by(null, 'erp'), read)
    await recordRead(by('ben'), { ...read, transactionId: '2' })
    clock.now += 600_000
    await recordRead(by('ben'), read)
    const seen = actions.map(({ act, TransactionID }) => [act.by.person, TransactionID])
    expect(seen).toEqual([
      ['ben', '1'],
      ['cleo', '1'],
      [null, '1'],
      ['ben', '2'],
      ['ben', '1'],
    ])
  })

  it('a key that reads very many different things has a last entry that says so', async () => {
    const { actions, recordRead } = open()
    for (let n = 0; n < READS_PER_WINDOW + 20; n += 1)
      await recordRead(by('ben'), { ...read, transactionId: String(n) })
    expect(actions).toHaveLength(READS_PER_WINDOW + 1)
    expect(actions.at(-1)).toMatchObject({
      act: { by: by('ben'), reason: expect.stringContaining('further reads') },
      Process: '*',
      TransactionID: null,
    })
    await recordRead(by(null, 'erp'), read)
    expect(actions.at(-1)).toMatchObject({ act: { by: { keyId: 'erp' } }, TransactionID: '1' })
  })
})
