import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
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
let onRequest: () => Promise<void>
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'export-'))
  onRequest = async () => {}
  service = await startFakeService({
    'GET /transactions/export': async () => {
      await onRequest()
      return responses.shift() ?? { status: 500 }
    },
  })
})
afterEach(async () => {
  await service[Symbol.asyncDispose]()
  await rm(folder, { recursive: true })
})
const cli = (...args: readonly string[]) =>
  run(['transactions', 'export', ...args], { env: { COORDINATOR_URL: service.url } })
const queries = () => service.requests.map(({ query }) => Object.fromEntries(query))

describe('the command `transactions export`', () => {
  it('`transactions export` prints the lines of the runs unchanged, omits the cursor lines, and prints the value of --since for the next export', async () => {
    responses = [ndjson(runLine('1'), cursorLine('c1'), runLine('2'), cursorLine(null))]
    const since = '2026-01-01T00:00:00Z'
    const { code, out, err } = await cli('--since', since, '--process', 'P', '--ndjson')
    expect([code, err]).toEqual([0, `2 runs. The next export begins with --since ${UNTIL}\n`])
    expect(out).toBe(`${runLine('1')}\n${runLine('2')}\n`)
    expect(queries()).toEqual([{ since, process: 'P' }])
  })

  it('`transactions export` continues after the last cursor if the connection is interrupted, and prints no run twice', async () => {
    responses = [
      { ...ndjson(runLine('1'), cursorLine('c1'), runLine('2')), isCut: true },
      ndjson(runLine('2'), runLine('3'), cursorLine(null)),
    ]
    const { code, out } = await cli()
    expect(code).toBe(0)
    expect(out).toBe(['1', '2', '3'].map((id) => `${runLine(id)}\n`).join(''))
    expect(queries()).toEqual([{}, { cursor: 'c1' }])
  })

  it('`transactions export` fails if the last line of the response is missing, and prints how to continue the export', async () => {
    responses = [
      ndjson(runLine('1'), cursorLine('c1')),
      ...Array.from({ length: 5 }, () => ({ body: '' })),
    ]
    const { code, err } = await cli()
    expect(code).toBe(5)
    expect(err).toContain('not complete after 1 run. Continue with --cursor c1')
  })

  it('`transactions export --file` writes a new file that only its owner can read, and leaves no file after a failure', async () => {
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

  it('`transactions export --file` removes the file of an export that cannot be completed, and prints the reason', async () => {
    const file = join(folder, 'runs.ndjson')
    onRequest = () => writeFile(file, 'of another program')
    responses = [ndjson(runLine('1'), cursorLine(null))]
    const { code, err } = await cli('--file', file)
    expect([code, err]).toEqual([
      1,
      `${file} cannot be written (EEXIST).\nThe export is not complete after 1 run. The file is removed. Repeat the command.\n`,
    ])
    expect(await readdir(folder)).toEqual(['runs.ndjson'])
    expect(await readFile(file, 'utf8')).toBe('of another program')
  })

  it('`transactions export --file` does not overwrite the file of another running export', async () => {
    const file = join(folder, 'runs.ndjson')
    await writeFile(`${file}.part`, runLine('1'))
    const { code, err } = await cli('--file', file)
    expect([code, err]).toEqual([1, expect.stringContaining(`${file}.part exists: an export`)])
    expect(await readFile(`${file}.part`, 'utf8')).toBe(runLine('1'))
    expect(service.requests).toEqual([])
  })

  it('`transactions export` accepts durations such as 2h for --since and --until, and subtracts them from the current time', async () => {
    responses = [ndjson(cursorLine(null))]
    await run(['transactions', 'export', '--since', '2d', '--until', '2h'], {
      env: { COORDINATOR_URL: service.url },
      wallClock: () => Date.parse(UNTIL),
    })
    expect(queries()).toEqual([
      { since: '2026-01-30T00:00:00.000Z', until: '2026-01-31T22:00:00.000Z' },
    ])
  })

  it('`transactions export` rejects a time without an offset as wrong usage', async () => {
    const { code, err } = await cli('--until', '2026-01-01')
    expect([code, err]).toEqual([2, expect.stringMatching(/^--until must be a duration such as /)])
  })
})
