import { randomBytes } from 'node:crypto'
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { ExportDocument } from '@integration-host/shared/contracts/custody'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  type FakeResponse,
  type ReceivedRequest,
  type FakeService,
  problem,
  startFakeService,
} from '../../test-support/fake-service.ts'
import { run, type Surroundings } from '../../test-support/run.ts'
import { CommandFailed } from '../exit-code.ts'

const PASSPHRASE = 'correct horse battery staple'
const AT = '2026-11-21T08:00:00.000Z'
const named = (count: number): string[] =>
  Array.from({ length: count }, (_, n) => `ACC-${String(n).padStart(5, '0')}`)
const documentOf = (names: readonly string[]): ExportDocument => ({
  Format: 'integration-host-credentials/1',
  ExportedAt: AT,
  Names: [...names],
  Kdf: { Name: 'none' },
  Nonce: Buffer.alloc(12).toString('base64'),
  Ciphertext: Buffer.from('sealed').toString('base64'),
})

let service: FakeService
let folder: string
let stored: string[]
/**
 * Returns the error response to the export or import request with this number, counted from 1; `undefined` lets the
 * request succeed.
 */
let failing: (call: number) => FakeResponse | undefined
const sent = (): readonly ReceivedRequest[] =>
  service.requests.filter(({ route }) => route.startsWith('POST '))

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'cli-'))
  stored = named(3)
  failing = () => undefined
  service = await startFakeService({
    'GET /credentials': ({ query }) => {
      const start = stored.indexOf(query.get('cursor') ?? '') + 1
      const names = stored.slice(start, start + 500)
      const state = { Status: 'active', State: 'active', Attempts: 0 }
      const view = { Environment: '', Expiry: AT, ...state, Version: 1, RefreshedAt: AT }
      const fault = { Code: 'no_refresh_token', Message: '', At: AT, Attempts: 0 }
      return {
        body: {
          items: names.map((Name) => ({
            Name,
            ...view,
            ...(Name === 'ACC-none' && { Status: 'faulted', Fault: fault }),
          })),
          next_cursor: start + 500 < stored.length ? names.at(-1) : null,
        },
      }
    },
    'POST /exports': ({ body }) =>
      failing(sent().length) ?? { body: documentOf(body['Names'] as string[]) },
    'POST /imports': ({ body }) => {
      const { Names } = body['Document'] as ExportDocument
      const imported = Names.filter((name) => name !== 'ACC-held')
      return (
        failing(sent().length) ?? {
          body: {
            imported: imported.map((Name) => ({ Name, Version: 2 })),
            refused:
              Names.length > imported.length
                ? [{ Name: 'ACC-held', Reason: 'version 3 is usable here' }]
                : [],
          },
        }
      )
    },
  })
})
afterEach(async () => {
  await service[Symbol.asyncDispose]()
  await rm(folder, { recursive: true })
})

const at = (name: string): string => join(folder, name)
const transfer = (args: readonly string[], options: Surroundings = {}) =>
  run(['credentials', ...args], {
    url: service.url,
    env: { EXPORT_PASSPHRASE: PASSPHRASE },
    ...options,
  })
const linesOf = async (name: string): Promise<ExportDocument[]> =>
  (await readFile(at(name), 'utf8'))
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as ExportDocument)

describe('the command `credentials export`', () => {
  it('`credentials export` writes the named credentials to a file with mode 0600, and says that token-service no longer refreshes them', async () => {
    const { code, out, err } = await transfer([
      'export',
      'ACC-1',
      'ACC-2',
      'ACC-1',
      '--out',
      at('x'),
    ])
    expect([code, out]).toEqual([0, `${at('x')} has ACC-1, ACC-2.\n`])
    expect(err).toContain('no longer refreshes these credentials')
    expect(await linesOf('x')).toEqual([documentOf(['ACC-1', 'ACC-2'])])
    expect((await stat(at('x'))).mode & 0o777).toBe(0o600)
    expect(await readdir(folder)).toEqual(['x'])
  })

  it('`credentials export --all` exports all credentials with a refresh token, in requests of at most 500 credentials', async () => {
    stored = [...named(1_200), 'ACC-none']
    const { code, json, err } = await transfer(['export', '--all', '--out', at('x'), '--json'])
    expect([code, json]).toEqual([0, [{ File: at('x'), Names: named(1_200), IsComplete: true }]])
    expect(err).toContain('ACC-none has no refresh token')
    expect((await linesOf('x')).map(({ Names }) => Names.length)).toEqual([500, 500, 200])
    expect((await transfer(['export', '--all', '--out', at('y')])).out).toContain(
      'has 1200 credentials, ACC-00000 to ACC-01199.',
    )
  })

  it('`credentials export --all` reports that no credentials exist', async () => {
    stored = []
    const { code, err } = await transfer(['export', '--all', '--out', at('x')])
    expect([code, err]).toEqual([1, 'There are no credentials to export.\n'])
    expect(await readdir(folder)).toEqual([])
  })

  it('`credentials export` does not overwrite an existing file, and sends no request', async () => {
    await writeFile(at('x'), 'mine')
    const { code, err } = await transfer(['export', 'ACC-1', '--out', at('x')])
    expect([code, err]).toEqual([1, expect.stringContaining('never overwritten')])
    expect(await readFile(at('x'), 'utf8')).toBe('mine')
    expect(sent()).toEqual([])
  })

  it('`credentials export` leaves the credentials in FILE.part if another process creates FILE during the export', async () => {
    failing = () => {
      void writeFile(at('x'), 'mine')
      return undefined
    }
    const { code, err } = await transfer(['export', 'ACC-1', '--out', at('x')])
    expect([code, err]).toEqual([1, expect.stringContaining(`${at('x')}.part has the credentials`)])
    expect(await readFile(at('x'), 'utf8')).toBe('mine')
    expect(await linesOf('x.part')).toEqual([documentOf(['ACC-1'])])
  })

  it('`credentials export` does not overwrite the FILE.part of a previous export that was killed', async () => {
    await writeFile(at('x.part'), 'received')
    const { code, err } = await transfer(['export', 'ACC-1', '--out', at('x')])
    expect([code, err]).toEqual([1, expect.stringContaining('Rename or remove it first')])
    expect(await readFile(at('x.part'), 'utf8')).toBe('received')
    expect(sent()).toEqual([])
  })

  it('`credentials export` sends no request if the folder cannot be written', async () => {
    const { code, err } = await transfer(['export', 'ACC-1', '--out', at('no/x')])
    expect([code, err]).toEqual([1, expect.stringContaining('ENOENT')])
    expect(sent()).toEqual([])
  })

  it.each([
    ['token-service fails', problem(503, 'store_unavailable'), 1],
    ['the connection is cut', { body: '{"Format":', isCut: true }, 5],
  ])(
    '`credentials export` keeps and reports the received documents if %s',
    async (_, response, expected) => {
      stored = named(1_200)
      failing = (call) => (call === 3 ? response : undefined)
      const { code, out, err } = await transfer(['export', '--all', '--out', at('x')])
      expect(code).toBe(expected)
      expect(out).toContain('has 1000 credentials, ACC-00000 to ACC-00999.')
      expect(err).toContain('The export is not complete')
      expect(err).toContain('every credential can be exported again')
      expect((await linesOf('x')).flatMap(({ Names }) => Names)).toEqual(named(1_000))
      expect(await readdir(folder)).toEqual(['x'])
    },
  )

  it('`credentials export` keeps the received documents if it is interrupted', async () => {
    stored = named(600)
    const stop = new AbortController()
    failing = (call) => {
      if (call === 2) stop.abort(new CommandFailed(130, 'Stopped by SIGINT.'))
      return undefined
    }
    const { code, json } = await transfer(['export', '--all', '--out', at('x'), '--json'], {
      url: service.url,
      env: { EXPORT_PASSPHRASE: PASSPHRASE },
      stop: stop.signal,
    })
    expect([code, json]).toEqual([130, [{ File: at('x'), Names: named(500), IsComplete: false }]])
    expect(await linesOf('x')).toHaveLength(1)
  })

  it('`credentials export` leaves no file if no document was received', async () => {
    failing = () => problem(404, 'credential_not_found', { detail: 'there is no credential ACC-1' })
    const { code, err } = await transfer(['export', 'ACC-1', '--out', at('x')])
    expect([code, err]).toEqual([3, 'there is no credential ACC-1 (credential_not_found)\n'])
    expect(await readdir(folder)).toEqual([])
  })
})

describe('the passphrase or key of an export', () => {
  const exportOne = ['export', 'ACC-1', '--out']
  const secretSent = () => {
    const { Passphrase, Key } = sent().at(-1)?.body ?? {}
    return { Passphrase, Key }
  }
  const bare = { env: {} }

  it('`credentials export` reads the passphrase from the environment or from a file, without a trailing line break', async () => {
    await transfer([...exportOne, at('a')])
    expect(secretSent()).toEqual({ Passphrase: PASSPHRASE })
    await writeFile(at('pass'), 'another passphrase\n')
    const file = ['--passphrase-file', at('pass')]
    expect(await transfer([...exportOne, at('b'), ...file])).toMatchObject({ code: 0 })
    expect(secretSent()).toEqual({ Passphrase: 'another passphrase' })
    const env = { EXPORT_PASSPHRASE_FILE: at('pass') }
    expect(await run(['credentials', ...exportOne, at('c')], { ...service, env })).toMatchObject({
      code: 0,
    })
    expect(secretSent()).toEqual({ Passphrase: 'another passphrase' })
  })

  it('`credentials export` reads the encryption key from --key-file', async () => {
    const key = randomBytes(32).toString('base64')
    await writeFile(at('key'), `${key}\n`)
    expect(await transfer([...exportOne, at('x'), '--key-file', at('key')])).toMatchObject({
      code: 0,
    })
    expect(secretSent()).toEqual({ Key: key })
  })

  it('without echo, `credentials export` prompts for the passphrase twice, and `credentials import` prompts for it once', async () => {
    const typed = [PASSPHRASE, PASSPHRASE]
    const requests = await transfer([...exportOne, at('x')], { ...service, ...bare, typed })
    expect(requests.code).toBe(0)
    expect(secretSent()).toEqual({ Passphrase: PASSPHRASE })
    expect(requests.err).toContain('Passphrase: \nRepeat the passphrase: \n')
    const again = await transfer(['import', at('x')], { ...service, ...bare, typed: [PASSPHRASE] })
    expect(again.code).toBe(0)
    for (const { out, err } of [requests, again]) expect(out + err).not.toContain('horse')
  })

  it.each([
    ['the two entered passphrases differ', [PASSPHRASE, `${PASSPHRASE}!`], 2, 'differ'],
    ['the entered passphrase is too short', ['short', 'short'], 2, 'at least 12 characters'],
    ['the user enters nothing', [], 1, 'nothing was done'],
  ])('`credentials export` sends no request if %s', async (_, typed, expected, message) => {
    const { code, err } = await transfer([...exportOne, at('x')], { ...service, ...bare, typed })
    expect([code, err]).toEqual([expected, expect.stringContaining(message)])
    expect(await readdir(folder)).toEqual([])
    expect(sent()).toEqual([])
  })

  it('`credentials export` requires exactly one readable passphrase or key', async () => {
    await writeFile(at('bad-key'), 'not a key')
    const refused = [
      [[], 'A passphrase or key is needed'],
      [['--passphrase-file', 'a', '--key-file', 'b'], 'not both'],
      [['--passphrase-file', at('gone')], '--passphrase-file cannot be read (ENOENT)'],
      [['--key-file', at('bad-key')], '--key-file must hold 32 bytes'],
    ] as const
    for (const [options, message] of refused) {
      const { code, err } = await transfer([...exportOne, at('x'), ...options], {
        ...service,
        ...bare,
      })
      expect([code, err]).toEqual([2, expect.stringContaining(message)])
      expect(err).not.toContain('not a key')
    }
    expect(sent()).toEqual([])
  })

  it('`credentials export` does not print the passphrase if the export fails', async () => {
    for (const response of [problem(400, 'invalid_request'), problem(500, 'internal_error')]) {
      failing = () => response
      const { out, err } = await transfer([...exportOne, at('x')])
      expect(out + err).not.toContain('horse')
    }
  })
})

describe('the command `credentials import`', () => {
  const write = (...documents: readonly (ExportDocument | string)[]): Promise<void> =>
    writeFile(
      at('x'),
      documents.map((one) => `${typeof one === 'string' ? one : JSON.stringify(one)}\n`).join(''),
    )

  it('`credentials import` reads the file line by line and prints the number of imported credentials', async () => {
    await write(documentOf(['ACC-1', 'ACC-2']), documentOf(['ACC-3']))
    const { code, out, err } = await transfer(['import', at('x')])
    expect([code, out, err]).toEqual([0, '3 imported, 0 rejected\n', ''])
    expect(sent().map(({ body }) => body)).toEqual([
      { Document: documentOf(['ACC-1', 'ACC-2']), Overwrite: false, Passphrase: PASSPHRASE },
      { Document: documentOf(['ACC-3']), Overwrite: false, Passphrase: PASSPHRASE },
    ])
  })

  it('`credentials import` sends --overwrite to token-service', async () => {
    await write(documentOf(['ACC-1']))
    expect(await transfer(['import', at('x'), '--overwrite'])).toMatchObject({ code: 0 })
    expect(sent()[0]?.body).toMatchObject({ Overwrite: true })
  })

  it('`credentials import` reports rejected lines with their reason, continues, and exits with code 1', async () => {
    const lines = [
      documentOf(['ACC-held']),
      'not json',
      documentOf(['ACC-1']),
      documentOf(['ACC-2']),
    ]
    const unfit = problem(400, 'invalid_request', { detail: 'the passphrase or key does not fit' })
    failing = (call) => (call === 2 ? unfit : undefined)
    await write(...lines)
    const { code, out, err } = await transfer(['import', at('x')])
    expect([code, out]).toEqual([1, '1 imported, 3 rejected\n'])
    expect(err.split('\n')).toEqual([
      'ACC-held was rejected: version 3 is usable here',
      'line 2: is not a document of exported credentials',
      'line 3: the passphrase or key does not fit (invalid_request)',
      '',
    ])
  })

  it('`credentials import --json` prints one JSON report for each line of the file', async () => {
    await write(documentOf(['ACC-held', 'ACC-1']), 'not json')
    const { code, json, err } = await transfer(['import', at('x'), '--json'])
    expect([code, err]).toEqual([1, ''])
    expect(json).toEqual([
      {
        Line: 1,
        imported: [{ Name: 'ACC-1', Version: 2 }],
        refused: [{ Name: 'ACC-held', Reason: 'version 3 is usable here' }],
      },
      { Line: 2, Error: 'is not a document of exported credentials' },
    ])
  })

  it('`credentials import` stops if token-service fails, and reports how many credentials were imported', async () => {
    failing = (call) => (call === 2 ? problem(503, 'store_unavailable') : undefined)
    await write(documentOf(['ACC-1']), documentOf(['ACC-2']), documentOf(['ACC-3']))
    const { code, err } = await transfer(['import', at('x')])
    expect(code).toBe(1)
    expect(err).toContain(`Stopped at line 2 of ${at('x')}, with 1 credential imported.`)
    expect(sent()).toHaveLength(2)
  })

  it.each([
    ['is missing', null, 'ENOENT'],
    ['is empty', '', 'is empty'],
  ])('`credentials import` reports that the file %s', async (_, content, message) => {
    if (content !== null) await writeFile(at('x'), content)
    const { code, err } = await transfer(['import', at('x')])
    expect([code, err]).toEqual([1, expect.stringContaining(message)])
  })
})
