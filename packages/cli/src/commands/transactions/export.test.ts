import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  type FakeResponse,
  type FakeService,
  startFakeService,
} from '../../../test-support/fake-service.ts'
import { run } from '../../../test-support/run.ts'

const UNTIL = '2026-02-01T00:00:00.000Z'
const runLine = (id: string): string =>
  JSON.stringify({ Process: 'P', TransactionID: id, ReplayID: 0, Later: { a: [1] } })
const cursorLine = (cursor: string | null): string =>
  JSON.stringify({ next_cursor: cursor, Runs: 1, Until: UNTIL })
const ndjson = (...lines: string[]): FakeResponse => ({ body: `${lines.join('\n')}\n` })

let responses: FakeResponse[]
let service: FakeService
let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'export-'))
  service = await startFakeService({
    'GET /transactions/export': () => responses.shift() ?? { status: 500 },
  })
})
afterEach(async () => {
  await service[Symbol.asyncDispose]()
  await rm(folder, { recursive: true })
})
const cli = (...args: readonly string[]) =>
  run(['transactions', 'export', ...args], { env: { COORDINATOR_URL: service.url } })
const queries = () => service.requests.map(({ query }) => Object.fromEntries(query))

describe('transactions export', () => {
  it('the runs are printed unchanged without the lines of cursors, and the time with which the next export begins', async () => {
    responses = [ndjson(runLine('1'), cursorLine('c1'), runLine('2'), cursorLine(null))]
    const since = '2026-01-01T00:00:00Z'
    const { code, out, err } = await cli('--since', since, '--process', 'P', '--ndjson')
    expect([code, err]).toEqual([0, `2 runs. The next export begins with --since ${UNTIL}\n`])
    expect(out).toBe(`${runLine('1')}\n${runLine('2')}\n`)
    expect(queries()).toEqual([{ since, process: 'P' }])
  })

  it('an export that breaks off continues behind the last cursor, and prints no run twice', async () => {
    responses = [
      { ...ndjson(runLine('1'), cursorLine('c1'), runLine('2')), isCut: true },
      ndjson(runLine('2'), runLine('3'), cursorLine(null)),
    ]
    const { code, out } = await cli()
    expect(code).toBe(0)
    expect(out).toBe(['1', '2', '3'].map((id) => `${runLine(id)}\n`).join(''))
    expect(queries()).toEqual([{}, { cursor: 'c1' }])
  })

  it('a response without its last line is not a complete export; the command says how to continue it', async () => {
    responses = [
      ndjson(runLine('1'), cursorLine('c1')),
      ...Array.from({ length: 5 }, () => ({ body: '' })),
    ]
    const { code, err } = await cli()
    expect(code).toBe(5)
    expect(err).toContain('not complete after 1 run. Continue with --cursor c1')
  })

  it('with --file the runs are in a new file that only its owner can read, and a failed export leaves no file', async () => {
    const file = join(folder, 'runs.ndjson')
    responses = [{ status: 500 }]
    expect((await cli('--file', file)).code).not.toBe(0)
    expect(await readdir(folder)).toEqual([])
    responses = [ndjson(runLine('1'), cursorLine(null))]
    expect(await cli('--file', file)).toMatchObject({ code: 0, out: '' })
    expect(await readFile(file, 'utf8')).toBe(`${runLine('1')}\n`)
    expect((await stat(file)).mode & 0o777).toBe(0o600)
    responses = [ndjson(cursorLine(null))]
    const again = await cli('--file', file)
    expect([again.code, again.err]).toEqual([1, `${file} exists and is never overwritten.\n`])
  })

  it('a time without an offset is wrong usage', async () => {
    const { code, err } = await cli('--until', '2026-01-01')
    expect([code, err.split('\n')[0]]).toEqual([
      2,
      '--until must be a time such as 2026-01-31T08:00:00Z',
    ])
  })
})
