import { describe, expect, it } from 'vitest'
import { useFakeService } from '../../test-support/fake-service.ts'
import { expectWrongUsage, run } from '../../test-support/run.ts'

const action = (ID: number, members: object = {}) => ({
  ID,
  At: '2026-11-23T08:00:00.000Z',
  KeyID: 'ops',
  Person: null,
  Action: 'cancel',
  Process: 'OrderProcess',
  TransactionID: '66',
  ReplayID: 0,
  Realm: null,
  Reason: null,
  Outcome: 'done',
  OperationID: null,
  ...members,
})
const all = [
  action(4, { Person: 'ada@example.com', Reason: 'x\u202ey' }),
  action(3, { Action: 'pause', TransactionID: null, ReplayID: null }),
  action(2, { Outcome: 'transaction_not_active' }),
  action(1),
]

const service = useFakeService({
  // The first page is empty, as it is for a key that has no permission to see the newest actions. Every other page
  // has two actions.
  'GET /actions': ({ query }) => {
    const before = query.get('before')
    if (before === null) return { body: { items: [], next_before: 5 } }
    const left = all.filter(({ ID }) => ID < Number(before))
    const items = left.slice(0, Math.min(2, Number(query.get('limit'))))
    const next = left.length > items.length ? items.at(-1)?.ID : null
    return { body: { items, next_before: next } }
  },
})

const cli = (...args: readonly string[]) =>
  run(['actions', 'list', ...args], { env: { COORDINATOR_URL: service.url } })

describe('the command `actions list`', () => {
  it('`actions list` prints actions with their callers, newest first, and reads further pages after a page without actions', async () => {
    const { code, out, err } = await cli()
    expect([code, err]).toEqual([0, ''])
    expect(out.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
      ['ID', 'AT', 'WHO', 'ACTION', 'PROCESS', 'TRANSACTION', 'REPLAY', 'OUTCOME', 'REASON'],
      expect.arrayContaining(['4', 'ops for ada@example.com', 'cancel', '66', 'done', 'x\ufffdy']),
      expect.arrayContaining(['3', 'ops', 'pause', 'OrderProcess', 'done']),
      expect.arrayContaining(['2', 'transaction_not_active']),
      expect.arrayContaining(['1', 'cancel']),
      [''],
    ])
  })

  it('`actions list` sends the filters, stops at --limit, and prints the number at which the next page begins', async () => {
    const { err } = await cli('--process', 'P', '--id', '66', '--before', '5', '--limit', '3')
    expect(err).toBe('There are more: --before 2.\n')
    expect(service.requests.map(({ query }) => Object.fromEntries(query))).toEqual([
      { process: 'P', id: '66', before: '5', limit: '3' },
      { process: 'P', id: '66', before: '3', limit: '1' },
    ])
  })

  it('`actions list --json` prints one document on each line, with all members of the response', async () => {
    expect((await cli('--json')).json).toEqual(all)
  })

  it.each([
    [['66'], "Unexpected argument '66'"],
    [['--before', 'x'], '--before must be a whole number'],
    [['--before', '0'], '--before must be at least 1'],
    [['--limit', '0'], '--limit must be at least 1'],
    [['--id', ''], '--id must not be empty'],
  ])(
    '`actions` rejects the arguments %j as wrong usage and sends no request',
    async (args, message) => {
      expectWrongUsage(await cli(...args), message, service.requests)
    },
  )
})
