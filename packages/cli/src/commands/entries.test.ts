import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type FakeService, startFakeService } from '../../test-support/fake-service.ts'
import { expectWrongUsage, run } from '../../test-support/run.ts'

const entry = (EntryID: string, members: object = {}) => ({
  EntryID,
  Realm: '42',
  Entity: 'Invoice',
  EntityID: '129',
  Operation: 'create',
  Process: 'Bill',
  TransactionID: 'A-1',
  ReplayID: 0,
  StepName: 'create',
  SyncToken: '0',
  Fields: { DocNumber: '5d1c0f3a9be27764' },
  RecordedAt: '2026-11-23T08:00:00.000Z',
  State: 'Superseded',
  CheckedAt: null,
  Changed: null,
  ...members,
})
const changed = {
  Operation: 'update',
  SyncToken: '1',
  ReplayID: 2,
  State: 'ChangedOutside',
  CheckedAt: '2026-11-24T08:00:00.000Z',
  Changed: ['DocNumber'],
}
let entries = [entry('b', changed), entry('a')]

let service: FakeService
beforeEach(async () => {
  entries = [entry('b', changed), entry('a')]
  service = await startFakeService({
    'GET /entries': ({ query }) => {
      const from = Number(query.get('cursor') ?? 0)
      const to = from + Math.min(1, Number(query.get('limit')))
      const next_cursor = to < entries.length ? String(to) : null
      return { body: { items: entries.slice(from, to), next_cursor } }
    },
  })
})
afterEach(() => service[Symbol.asyncDispose]())

const cli = (...args: readonly string[]) =>
  run(['entries', ...args], { env: { COORDINATOR_URL: service.url } })

describe('the commands on entries', () => {
  it('`entries list` prints entries of all pages, newest first, with their runs', async () => {
    const { code, out, err } = await cli('list')
    expect([code, err]).toEqual([0, ''])
    expect(out.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
      ['AT', 'REALM', 'ENTITY', 'ID', 'OPERATION', 'STATE', 'RUN', 'STEP'],
      expect.arrayContaining(['Invoice', '129', 'update', 'Bill/A-1, replay 2', 'create']),
      expect.arrayContaining(['Superseded', 'Bill/A-1']),
      [''],
    ])
    expect((await cli('list', '--json')).json).toEqual(entries)
  })

  it('`entries list` sends its filters, and prints the cursor of the next page', async () => {
    const filters = ['--realm', '42', '--entity', 'Invoice', '--id', '129', '--process', 'Bill']
    const others = ['--transaction', 'A-1', '--state', 'Missing', '--since', '2026-11-23T08:00:00Z']
    const { err } = await cli('list', ...filters, ...others, '--limit', '1')
    expect(err).toBe('There are more: --cursor 1, or --all.\n')
    expect(service.requests.map(({ query }) => Object.fromEntries(query))).toEqual([
      {
        realm: '42',
        entity: 'Invoice',
        id: '129',
        process: 'Bill',
        transaction: 'A-1',
        state: 'Missing',
        since: '2026-11-23T08:00:00Z',
        limit: '1',
      },
    ])
  })

  it('`entries show` prints the entries of an object', async () => {
    const { code, out } = await cli('show', 'Invoice', '129', '--realm', '42')
    expect(code).toBe(0)
    for (const part of [
      'Object      Invoice 129 of company 42',
      'State       ChangedOutside, checked 2026-11-24T08:00:00.000Z',
      'Changed     DocNumber',
      'Run         Bill/A-1, replay 2, step create',
      'Fields      DocNumber',
    ])
      expect(out).toContain(part)
    expect((await cli('show', 'Invoice', '129', '--json')).json).toEqual(entries)
  })

  it('`entries show` needs a company if several have the object, and fails if none has', async () => {
    entries = [entry('b', { Realm: '43' }), entry('a')]
    const { code, err } = await cli('show', 'Invoice', '129')
    expect([code, err]).toEqual([2, expect.stringContaining('--realm 43, --realm 42')])
    entries = []
    expect((await cli('show', 'Invoice', '129')).code).toBe(3)
  })

  it.each([
    [['list', '66'], "Unexpected argument '66'"],
    [['list', '--state', 'Gone'], '--state must be one of Recorded'],
    [['list', '--since', 'yesterday'], '--since must be a duration'],
    [['list', '--transaction', ''], '--transaction must not be empty'],
    [['show', 'Invoice'], 'The kind and the id of an object are needed'],
  ])('`entries` rejects the arguments %j and sends no request', async (args, message) => {
    expectWrongUsage(await cli(...args), message, service.requests)
  })
})
