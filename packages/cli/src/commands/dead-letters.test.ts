import { describe, expect, it } from 'vitest'
import { problem, useFakeService } from '../../test-support/fake-service.ts'
import { expectWrongUsage, run } from '../../test-support/run.ts'

const letter = (ID: number, members: object = {}) => ({
  ID,
  Process: 'OrderProcess',
  MessageID: `m${ID}#0123456789abcdef`,
  Reason: 'malformed',
  At: '2026-11-23T08:00:00.000Z',
  TransactionID: null,
  ReplayID: null,
  StepName: null,
  Content: 'not\u001b json\nat all',
  Encoding: 'text',
  ContentBytes: 15,
  ...members,
})
const all = [
  letter(3, { TransactionID: '66', ReplayID: 1, StepName: 'order', Reason: 'unknown_step' }),
  letter(2, { Encoding: 'base64', Content: '/wA=', ContentBytes: 2 }),
  letter(1),
]
const PATH = '/processes/OrderProcess/dead-letters'

const service = useFakeService({
  'GET /processes': () => ({ body: { items: [{ Process: 'OrderProcess' }] } }),
  [`GET ${PATH}`]: ({ query }) => {
    const left = all.filter(({ ID }) => ID < Number(query.get('cursor') ?? 4))
    const items = left.slice(0, Math.min(2, Number(query.get('limit'))))
    const next = left.length > items.length ? String(items.at(-1)?.ID) : null
    return { body: { items, next_cursor: next } }
  },
  [`GET ${PATH}/1`]: () => ({ body: all[2] }),
  [`POST ${PATH}/3/requeue`]: () => ({
    status: 202,
    body: {
      Process: 'OrderProcess',
      TransactionID: '66',
      ReplayID: 1,
      Status: 'Running',
      StepName: 'order',
      InitialData: 1,
      Realm: null,
      Version: 3,
      Attempt: 0,
      NextAttemptAt: null,
      LastError: null,
      CreatedAt: '2026-11-23T08:00:00.000Z',
      UpdatedAt: '2026-11-23T08:00:00.000Z',
      CompletedAt: null,
    },
  }),
  [`POST ${PATH}/1/requeue`]: () =>
    problem(409, 'dead_letter_without_run', { detail: 'the message names no run' }),
  [`DELETE ${PATH}/1`]: () => ({ status: 204 }),
  [`DELETE ${PATH}`]: () => ({ body: { Deleted: 3 } }),
})

const cli = (...args: readonly string[]) =>
  run(['dead-letters', ...args], { env: { COORDINATOR_URL: service.url } })

describe('the commands `dead-letters`', () => {
  it('`dead-letters list` reads pages until it has --limit dead letters, and prints the reason, the run and the beginning of the content', async () => {
    const { code, out, err } = await cli('list', '--limit', '3')
    expect([code, err]).toEqual([0, ''])
    expect(out.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
      ['ID', 'AT', 'REASON', 'TRANSACTION', 'REPLAY', 'STEP', 'BYTES', 'CONTENT'],
      expect.arrayContaining(['3', 'unknown_step', '66', '1', 'order']),
      expect.arrayContaining(['2', '(not text)']),
      expect.arrayContaining(['1', 'malformed', '15', 'not\ufffd json at all']),
      [''],
    ])
    expect((await cli('list', '--limit', '2')).err).toBe('There are more: --cursor 2, or --all.\n')
    expect((await cli('list', '--all', '--json')).json).toEqual(all)
  })

  it('`dead-letters show` prints the content without control characters', async () => {
    const { out } = await cli('show', '1', '--process', 'OrderProcess')
    expect(out).toContain(
      'Message     m1#0123456789abcdef\nRun         none\nContent     15 bytes\n',
    )
    expect(out).toMatch(/\n\nnot\ufffd json\nat all\n$/)
    expect((await cli('show', '1', '--json')).json).toEqual([all[2]])
  })

  it('`dead-letters requeue` sends the reason, and prints the step whose message is re-published', async () => {
    const { code, out } = await cli('requeue', '3', '--reason', 'deployed')
    expect([code, out]).toEqual([0, '66, run 1: step order is published again.\n'])
    expect(service.requests.at(-1)?.body).toEqual({ Reason: 'deployed' })
    const rejected = await cli('requeue', '1')
    expect([rejected.code, rejected.err]).toEqual([
      1,
      'the message names no run (dead_letter_without_run)\n',
    ])
  })

  it('`dead-letters delete` deletes one dead letter, or every dead letter with --all, and sends the reason', async () => {
    expect((await cli('delete', '1', '--reason', 'a test')).out).toBe('1 dead letter deleted.\n')
    expect(service.requests.at(-1)?.body).toEqual({ Reason: 'a test' })
    expect((await cli('delete', '--all', '--reason', 'done')).out).toBe('3 dead letters deleted.\n')
    expect(service.requests.at(-1)).toMatchObject({
      route: `DELETE ${PATH}`,
      body: { Reason: 'done' },
    })
    expect((await cli('delete', '--all', '--json')).json).toEqual([{ Deleted: 3 }])
  })

  it.each([
    [['show'], 'The ID of a dead letter is needed'],
    [['show', 'x'], 'The ID must be a whole number'],
    [['requeue', '0'], 'The ID must be at least 1'],
    [['delete'], 'The ID of a dead letter is needed'],
    [['delete', '1', '--all'], "Unexpected argument '1'"],
    [['delete', '1', '--reason', ''], '--reason must not be empty'],
    [['list', '--limit', '1', '--all'], 'Either --limit or --all'],
  ])(
    '`dead-letters` rejects the arguments %j as wrong usage and sends no request',
    async (args, message) => {
      expectWrongUsage(await cli(...args), message, service.requests)
    },
  )
})
