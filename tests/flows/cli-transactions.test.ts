import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { waitForRun } from '../support/clients/user-actions.ts'
import { parseJsonLines, runCli } from '../support/processes/cli.ts'
import { startSystem, type System } from '../support/system.ts'

describe('the transactions command against a coordinator', () => {
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

  async function command(...args: readonly string[]) {
    const result = await runCli(args, {
      cwd: folder,
      env: { COORDINATOR_URL: system.url('coordinator'), SERVICE_API_KEY: system.serviceKey },
    })
    expect(result.stdout + result.stderr).not.toContain(system.serviceKey)
    return result
  }
  const cli = (...args: readonly string[]) => command('transactions', ...args)
  async function json(...args: readonly string[]) {
    const { code, stdout, stderr } = await cli(...args, '--json')
    return { code, stderr, lines: parseJsonLines(stdout) }
  }
  const idsOf = ({ lines }: { readonly lines: readonly Record<string, unknown>[] }) =>
    lines.map(({ TransactionID }) => TransactionID)

  it('`transactions queue` accepts a transaction, and `transactions show` prints its completed steps', async () => {
    expect(await cli('queue', '66')).toEqual({ code: 0, stdout: '66 is queued.\n', stderr: '' })
    await waitForRun(system, '66', 0, 'Completed')
    const { code, stdout } = await cli('show', '66')
    expect(code).toBe(0)
    expect(stdout).toMatch(
      /^Transaction +66\nProcess +OrderProcess\nReplay +0\nChanges +6 \(.*\)\nStatus +Completed\n/,
    )
    expect(stdout).toMatch(/^order +Completed +1 +201 /m)
    expect(stdout).toMatch(/^csv +Completed +1 /m)
  })

  it('`transactions queue` accepts an existing transaction id with the same data, and rejects it with other data', async () => {
    expect(await cli('queue', '66')).toMatchObject({
      code: 0,
      stdout: '66 was queued before, its status is Completed.\n',
    })
    expect(await cli('queue', '66', '--data', '{"a": 1}')).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringContaining('(transaction_conflict)'),
    })
  })

  it('`transactions replay` starts a new run from the first step or from a given step', async () => {
    expect(await cli('replay', '66')).toMatchObject({ code: 0, stdout: '66 is queued as run 1.\n' })
    await waitForRun(system, '66', 1, 'Completed')
    expect(await json('replay', '66', '--from-step', 'csv')).toMatchObject({
      code: 0,
      lines: [{ ReplayID: 2, StepName: 'csv' }],
    })
    const run = await waitForRun(system, '66', 2, 'Completed')
    expect(run.Items.map(({ Status }) => Status)).toEqual(['Copied', 'Copied', 'Completed'])
    expect(await json('show', '66', '--replay', '0')).toMatchObject({ lines: [{ ReplayID: 0 }] })
    expect(await cli('replay', '66', '--from-step', 'nowhere')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('(step_not_found)'),
    })
  })

  it('`transactions cancel` ends a run, and `transactions resume` continues the cancelled run', async () => {
    await system.service('demo-api').stop('SIGKILL')
    await cli('queue', '67')
    await waitForRun(system, '67', 0, 'Retrying')
    // A run has the status Running during each attempt.
    await eventually(async () =>
      expect((await cli('list', '--status', 'retrying')).stdout).toMatch(
        /^67 +OrderProcess +0 +Retrying +order /m,
      ),
    )
    expect(await cli('replay', '67')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('(transaction_active)'),
    })
    expect(await cli('cancel', '67', '--replay', '0', '--if-version', '0')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('(version_moved)'),
    })
    expect(await cli('cancel', '67', '--reason', 'the demo API is stopped')).toMatchObject({
      code: 0,
      stdout: '67 is cancelled at order, in run 0.\n',
    })
    expect(await cli('cancel', '67')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('(transaction_not_active)'),
    })
    system.start('demo-api')
    await system.ready('demo-api')
    expect(await json('resume', '67', '--replay', '0')).toMatchObject({
      code: 0,
      lines: [{ TransactionID: '67', ReplayID: 0, Status: 'Queued' }],
    })
    await waitForRun(system, '67', 0, 'Completed')
    expect(await cli('resume', '67')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('(transaction_not_resumable)'),
    })
  })

  it('`operations start --dry-run` only counts the matching runs; without this option, the runs are cancelled or resumed', async () => {
    await system.service('demo-api').stop('SIGKILL')
    const ids = ['bulk-1', 'bulk-2', 'bulk-3']
    for (const id of ids) await cli('queue', id)
    for (const id of ids) await waitForRun(system, id, 0, 'Retrying')
    const operation = (...args: string[]) =>
      command('operations', 'start', '--process', 'OrderProcess', '--id-prefix', 'bulk-', ...args)
    // A run has the status Running during each attempt.
    const unfinished = ['--status', 'retrying,running']
    const cancel = ['--action', 'cancel', ...unfinished, '--reason', 'the demo API is down']
    const counted = await operation(...cancel, '--dry-run', '--interval', '1')
    expect(counted).toMatchObject({ code: 0, stdout: expect.stringMatching(/3 runs would be/) })
    expect((await waitForRun(system, 'bulk-1', 0, 'Retrying')).Status).toBe('Retrying')
    expect(await operation(...cancel, '--watch', '--interval', '1')).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^Progress +3 runs changed, 0 skipped, 0 failed$/m),
    })
    system.start('demo-api')
    await system.ready('demo-api')
    const resume = ['--action', 'resume', '--status', 'cancelled', '--reason', 'it is back']
    expect((await operation(...resume, '--watch', '--interval', '1')).code).toBe(0)
    for (const id of ids) await waitForRun(system, id, 0, 'Completed')
    expect((await command('operations', 'list')).stdout).toMatch(
      / resume +OrderProcess +Completed /,
    )
    expect((await cli('runs', 'bulk-1')).stdout).toMatch(/^0 +Completed +csv /m)
  })

  it('`actions list` prints who did what to a transaction and why, and includes rejected actions', async () => {
    const { code, stdout } = await command('actions', 'list', '--id', '67')
    expect(code).toBe(0)
    const rows = stdout
      .trimEnd()
      .split('\n')
      .map((line) => line.split(/ {2,}/).slice(3).join(' '))
    expect(rows).toEqual([
      'ACTION PROCESS TRANSACTION REPLAY OUTCOME REASON',
      'resume OrderProcess 67 transaction_not_resumable',
      'resume OrderProcess 67 0 done',
      'cancel OrderProcess 67 transaction_not_active',
      'cancel OrderProcess 67 0 done the demo API is stopped',
      'cancel OrderProcess 67 0 version_moved',
      'replay OrderProcess 67 transaction_active',
    ])
  })

  it('`transactions queue --file` reports rejected lines, and queues no transaction twice if the command is repeated', async () => {
    const lines = Array.from({ length: 700 }, (_, n) =>
      JSON.stringify({ TransactionID: `f${n}`, InitialData: n }),
    )
    lines[3] = JSON.stringify({ TransactionID: 'f3', InitialData: 3, Colour: 'red' })
    lines[5] = JSON.stringify({ TransactionID: '66', InitialData: 'other' })
    await writeFile(join(folder, 'orders.ndjson'), `\n${lines.join('\n')}\n`)
    const { code, stdout, stderr } = await cli('queue', '--file', 'orders.ndjson')
    expect([code, stdout]).toEqual([1, '698 queued, 0 existed before, 2 rejected\n'])
    expect(stderr).toMatch(/^Line 5, f3: invalid_request; .*\nLine 7, 66: transaction_conflict\n$/)
    const again = await json('queue', '--file', 'orders.ndjson')
    expect(again.lines).toHaveLength(700)
    expect(again.lines[0]).toEqual({ Line: 2, TransactionID: 'f0', Outcome: 'exists', Errors: [] })
  })

  it('`transactions list` prints each transaction once across all pages, newest first', async () => {
    await eventually(
      async () => {
        expect(idsOf(await json('list', '--all', '--status', 'Completed'))).toHaveLength(705)
      },
      { seconds: 60 },
    )
    const all = idsOf(await json('list', '--all'))
    expect(new Set(all.filter((id) => String(id).startsWith('f'))).size).toBe(698)
    const first = await json('list', '--limit', '10')
    const cursor = /--cursor (\S+),/.exec(first.stderr)?.[1] ?? ''
    const second = await json('list', '--limit', '10', '--cursor', cursor)
    expect([...idsOf(first), ...idsOf(second)]).toEqual(all.slice(0, 20))
    expect(await json('list', '--since', '2100-01-01T00:00:00Z')).toMatchObject({
      code: 0,
      lines: [],
    })
  }, 90_000)

  it('the transactions command accepts any characters in a transaction id', async () => {
    const id = '../../=1+1 é;?#'
    expect((await cli('queue', id)).code).toBe(0)
    await waitForRun(system, id, 0, 'Completed')
    expect(await json('show', id)).toMatchObject({ lines: [{ TransactionID: id }] })
    expect((await cli('queue', '--', '--data')).stdout).toBe('--data is queued.\n')
  })

  it('the transactions command exits with 3 for an unknown transaction or business process, and with 1 for an invalid cursor', async () => {
    expect(await cli('show', 'unknown')).toMatchObject({
      code: 3,
      stdout: '',
      stderr: expect.stringContaining('(transaction_not_found)'),
    })
    expect(await cli('list', '--process', 'Nothing')).toMatchObject({
      code: 3,
      stderr: expect.stringContaining('(process_not_found)'),
    })
    expect(await cli('list', '--cursor', 'nonsense')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('(invalid_request)'),
    })
  })

  it('the transactions command exits with code 5 if the coordinator is unavailable', async () => {
    await system.service('coordinator').stop('SIGKILL')
    const { code, stderr } = await cli('list')
    expect([code, stderr]).toEqual([5, expect.stringContaining('coordinator at http://')])
    expect(stderr).toContain('COORDINATOR_URL')
  })
})
