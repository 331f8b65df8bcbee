import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runOf } from '../support/story-steps.ts'
import { startSystem, type System } from '../support/system.ts'

const PROGRAM = fileURLToPath(new URL('../../packages/cli/src/main.ts', import.meta.url))

describe('transactions from the command line, against a coordinator', () => {
  let system: System
  let folder: string
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'cli-'))
    system = await startSystem([])
    system.start('demo-api')
    system.start('coordinator', { LOCAL_PULL_SECONDS: '1' })
    await system.ready('coordinator', 'demo-api')
  })
  afterAll(async () => {
    await system[Symbol.asyncDispose]()
    await rm(folder, { recursive: true })
  })

  async function cli(...args: readonly string[]) {
    const { PATH = '' } = process.env
    const child = spawn(process.execPath, [PROGRAM, 'transactions', ...args], {
      cwd: folder,
      env: { PATH, COORDINATOR_URL: system.url('coordinator'), SERVICE_API_KEY: system.serviceKey },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    const [out, err, [code]] = await Promise.all([
      text(child.stdout),
      text(child.stderr),
      once(child, 'close') as Promise<[number | null]>,
    ])
    expect(out + err).not.toContain(system.serviceKey)
    return { code, out, err }
  }
  async function json(...args: readonly string[]) {
    const { code, out, err } = await cli(...args, '--json')
    const lines = out.split('\n').filter((line) => line !== '')
    return { code, err, lines: lines.map((line) => JSON.parse(line) as Record<string, unknown>) }
  }
  const idsOf = ({ lines }: { readonly lines: readonly Record<string, unknown>[] }) =>
    lines.map(({ TransactionID }) => TransactionID)

  it('queues one, which then completes, and shows its steps', async () => {
    expect(await cli('queue', '66')).toEqual({ code: 0, out: '66 is queued.\n', err: '' })
    await runOf(system, '66', 0, 'Completed')
    const { code, out } = await cli('show', '66')
    expect(code).toBe(0)
    expect(out).toMatch(/^Transaction +66\nProcess +OrderProcess\nReplay +0\nStatus +Completed\n/)
    expect(out).toMatch(/^order +Completed +1 +201 /m)
    expect(out).toMatch(/^csv +Completed +1 /m)
  })

  it('queues it once: the same data is no error, other data is refused', async () => {
    expect(await cli('queue', '66')).toMatchObject({
      code: 0,
      out: '66 was queued before: Completed.\n',
    })
    expect(await cli('queue', '66', '--data', '{"a": 1}')).toMatchObject({
      code: 1,
      out: '',
      err: expect.stringContaining('(transaction_conflict)'),
    })
  })

  it('replays it, from a step as well', async () => {
    expect(await cli('replay', '66')).toMatchObject({ code: 0, out: '66 is queued as run 1.\n' })
    await runOf(system, '66', 1, 'Completed')
    expect(await json('replay', '66', '--from-step', 'csv')).toMatchObject({
      code: 0,
      lines: [{ ReplayID: 2, StepName: 'csv' }],
    })
    const run = await runOf(system, '66', 2, 'Completed')
    expect(run.Items.map(({ Status }) => Status)).toEqual(['Copied', 'Copied', 'Completed'])
    expect(await json('show', '66', '--replay', '0')).toMatchObject({ lines: [{ ReplayID: 0 }] })
    expect(await cli('replay', '66', '--from-step', 'nowhere')).toMatchObject({
      code: 1,
      err: expect.stringContaining('(step_not_found)'),
    })
  })

  it('cancels a run and lets it go on', async () => {
    await system.service('demo-api').stop('SIGKILL')
    await cli('queue', '67')
    await runOf(system, '67', 0, 'Retrying')
    expect((await cli('list', '--status', 'retrying')).out).toMatch(/^67 +0 +Retrying +order /m)
    expect(await cli('replay', '67')).toMatchObject({
      code: 1,
      err: expect.stringContaining('(transaction_active)'),
    })
    expect(await cli('cancel', '67')).toMatchObject({
      code: 0,
      out: '67 is cancelled at order, in run 0.\n',
    })
    expect(await cli('cancel', '67')).toMatchObject({
      code: 1,
      err: expect.stringContaining('(transaction_not_active)'),
    })
    system.start('demo-api')
    await system.ready('demo-api')
    expect(await json('resume', '67', '--replay', '0')).toMatchObject({
      code: 0,
      lines: [{ TransactionID: '67', ReplayID: 0, Status: 'Queued' }],
    })
    await runOf(system, '67', 0, 'Completed')
    expect(await cli('resume', '67')).toMatchObject({
      code: 1,
      err: expect.stringContaining('(transaction_not_resumable)'),
    })
  })

  it('queues a file of more than one page, names the lines that were refused, and can do so again', async () => {
    const lines = Array.from({ length: 700 }, (_, n) =>
      JSON.stringify({ TransactionID: `f${n}`, InitialData: n }),
    )
    lines[3] = JSON.stringify({ TransactionID: 'f3', InitialData: 3, Colour: 'red' })
    lines[5] = JSON.stringify({ TransactionID: '66', InitialData: 'other' })
    await writeFile(join(folder, 'orders.ndjson'), `\n${lines.join('\n')}\n`)
    const { code, out, err } = await cli('queue', '--file', 'orders.ndjson')
    expect([code, out]).toEqual([1, '698 queued, 0 existed before, 2 rejected\n'])
    expect(err).toMatch(/^Line 5, f3: invalid_request; .*\nLine 7, 66: transaction_conflict\n$/)
    const again = await json('queue', '--file', 'orders.ndjson')
    expect(again.lines).toHaveLength(700)
    expect(again.lines[0]).toEqual({ Line: 2, TransactionID: 'f0', Outcome: 'exists', Errors: [] })
  })

  it('lists all of them once, the newest first, whatever the page', async () => {
    await eventually(
      async () => {
        expect(idsOf(await json('list', '--all', '--status', 'Completed'))).toHaveLength(702)
      },
      { seconds: 60 },
    )
    const all = idsOf(await json('list', '--all'))
    expect(new Set(all.filter((id) => String(id).startsWith('f'))).size).toBe(698)
    const first = await json('list', '--limit', '10')
    const cursor = /--cursor (\S+),/.exec(first.err)?.[1] ?? ''
    const second = await json('list', '--limit', '10', '--cursor', cursor)
    expect([...idsOf(first), ...idsOf(second)]).toEqual(all.slice(0, 20))
    expect(await json('list', '--since', '2100-01-01T00:00:00Z')).toMatchObject({
      code: 0,
      lines: [],
    })
  }, 90_000)

  it('takes an id of any characters', async () => {
    const id = '../../=1+1 é;?#'
    expect((await cli('queue', id)).code).toBe(0)
    await runOf(system, id, 0, 'Completed')
    expect(await json('show', id)).toMatchObject({ lines: [{ TransactionID: id }] })
    expect((await cli('queue', '--', '--data')).out).toBe('--data is queued.\n')
  })

  it('ends with 3 where there is no such transaction or process, 1 for a cursor of its own making', async () => {
    expect(await cli('show', 'nobody')).toMatchObject({
      code: 3,
      out: '',
      err: expect.stringContaining('(transaction_not_found)'),
    })
    expect(await cli('list', '--process', 'Nothing')).toMatchObject({
      code: 3,
      err: expect.stringContaining('(process_not_found)'),
    })
    expect(await cli('list', '--cursor', 'nonsense')).toMatchObject({
      code: 1,
      err: expect.stringContaining('(invalid_request)'),
    })
  })

  it('ends with 5 when nobody answers', async () => {
    await system.service('coordinator').stop('SIGKILL')
    const { code, err } = await cli('list')
    expect([code, err]).toEqual([5, expect.stringContaining('coordinator at http://')])
    expect(err).toContain('COORDINATOR_URL')
  })
})
