import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { GrantReport, GrantResult } from '@integration-host/shared/contracts/custody'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  type FakeResponse,
  type FakeService,
  problem,
  startFakeService,
} from '../../test-support/fake-service.ts'
import { run } from '../../test-support/run.ts'
import { CommandFailed } from '../exit-code.ts'

interface SentGrant {
  readonly Realm: string
  readonly RefreshToken: string
}

const tokenOf = (n: number): string => `rt-${String(n).padStart(6, '0')}-0123456789abcdef`
const lineOf = (n: number): string => JSON.stringify({ Realm: String(n), RefreshToken: tokenOf(n) })

let service: FakeService
let folder: string
/** Returns the result that the fake token-service reports for a grant. By default, the grant is stored. */
let resultOf: (grant: SentGrant) => Partial<GrantResult>
/**
 * Returns the error response to the request with this number, counted from 1; `undefined` lets the
 * request succeed.
 */
let failing: (call: number) => FakeResponse | undefined
let calls: number

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'cli-'))
  resultOf = () => ({})
  failing = () => undefined
  calls = 0
  service = await startFakeService({
    'GET /health/live': () => ({ body: { status: 'live' } }),
    'POST /imports/grants': ({ body }) => {
      calls += 1
      const failure = failing(calls)
      if (failure !== undefined) return failure
      const results = (body['lines'] as SentGrant[]).map((grant, index): GrantResult => ({
        Line: index + 1,
        Name: `ACC-${grant.Realm}`,
        Outcome: 'stored',
        Version: 1,
        ...resultOf(grant),
      }))
      const count = (wanted: string) => results.filter(({ Outcome }) => Outcome === wanted).length
      return {
        body: {
          stored: count('stored'),
          already_here: count('already_here'),
          refused: count('refused'),
          unavailable: count('unavailable'),
          invalid: count('invalid'),
          retry_after: 0,
          results,
        } satisfies GrantReport,
      }
    },
  })
})
afterEach(async () => {
  await service[Symbol.asyncDispose]()
  await rm(folder, { recursive: true })
})

async function fileOf(content: string | Buffer): Promise<string> {
  const path = join(folder, 'grants.ndjson')
  await writeFile(path, content)
  return path
}
const sent = (): SentGrant[] =>
  service.requests
    .filter(({ route }) => route === 'POST /imports/grants')
    .flatMap(({ body }) => body['lines'] as SentGrant[])
const adopt = async (content: string | Buffer, ...options: string[]) =>
  run(['credentials', 'adopt', '--file', await fileOf(content), ...options], service)

describe('the command `credentials adopt`', () => {
  it('`credentials adopt` prints a warning to stop the other program, the outcome of each line, and a summary', async () => {
    const { code, out, err } = await adopt(`${lineOf(1)}\n${lineOf(2)}\n`, '--yes')
    expect(code).toBe(0)
    expect(err).toContain('The other program must be stopped')
    expect(out.split('\n')).toEqual([
      'Line 1, ACC-1: stored (version 1)',
      'Line 2, ACC-2: stored (version 1)',
      '2 stored, 0 already here, 0 refused, 0 unavailable, 0 invalid',
      '',
    ])
  })

  it('`credentials adopt` prompts on a terminal, and sends nothing unless the user enters yes', async () => {
    const path = await fileOf(lineOf(1))
    const command = ['credentials', 'adopt', '--file', path]
    for (const typed of ['', 'n', 'yess']) {
      const { code, err } = await run(command, { ...service, typed: [typed] })
      expect([code, err]).toEqual([1, expect.stringContaining('No token was sent')])
    }
    expect((await run(command, service)).code).toBe(2)
    expect(sent()).toEqual([])
    expect((await run(command, { ...service, typed: ['yes'] })).code).toBe(0)
    expect(sent()).toHaveLength(1)
  })

  it.each([['--file', '-'], []])(
    '`credentials adopt %s %s` reads the grants from standard input, and requires --yes because it cannot prompt',
    async (...file) => {
      const command = ['credentials', 'adopt', ...file]
      expect((await run(command, { ...service, input: lineOf(1) })).code).toBe(2)
      expect(sent()).toEqual([])
      expect((await run([...command, '--yes'], { ...service, input: lineOf(1) })).code).toBe(0)
      expect(sent()).toEqual([{ Realm: '1', RefreshToken: tokenOf(1) }])
    },
  )

  it('`credentials adopt` on a terminal fails with a usage error if no file is given', async () => {
    expect((await run(['credentials', 'adopt'], { ...service, typed: [] })).code).toBe(2)
  })

  it('`credentials adopt` reports invalid lines by their numbers, and adopts the grants of the other lines', async () => {
    const content = Buffer.concat([
      Buffer.from(`\uFEFF${lineOf(1)}\r\n`),
      Buffer.from('\r\n{broken\n'),
      Buffer.from(`${'x'.repeat(10 * 1_048_576)}\n`),
      Buffer.from(`{"Realm":"4"}\n{"RefreshToken":"${tokenOf(5)}"}\n`),
      Buffer.from(`{"Realm":"${tokenOf(6)}","RefreshToken":"9341453908059889"}\n`),
      Buffer.from(`{"Realm":"1","RefreshToken":"${tokenOf(8)}"}\n`),
      Buffer.from([0xff, 0xfe, 0x0a]),
      Buffer.from(`${lineOf(10)}\n\u00A0${lineOf(11)}`),
    ])
    const { code, json, out, err } = await adopt(content, '--yes', '--json')
    expect(code).toBe(1)
    expect(json).toEqual([
      { Line: 3, Name: null, Outcome: 'invalid', Reason: 'is not JSON' },
      { Line: 4, Name: null, Outcome: 'invalid', Reason: 'has more than 16384 bytes' },
      {
        Line: 5,
        Name: null,
        Outcome: 'invalid',
        Reason: 'RefreshToken: is missing or not text',
      },
      { Line: 6, Name: null, Outcome: 'invalid', Reason: 'Realm: is missing or not text' },
      {
        Line: 7,
        Name: null,
        Outcome: 'invalid',
        Reason: 'RefreshToken: is too short for a refresh token',
      },
      {
        Line: 8,
        Name: 'ACC-1',
        Outcome: 'invalid',
        Reason: 'line 1 has a grant of the same company',
      },
      { Line: 9, Name: null, Outcome: 'invalid', Reason: 'is not JSON' },
      { Line: 11, Name: null, Outcome: 'invalid', Reason: 'is not JSON' },
      { Line: 1, Name: 'ACC-1', Outcome: 'stored', Version: 1 },
      { Line: 10, Name: 'ACC-10', Outcome: 'stored', Version: 1 },
    ])
    expect(out + err).not.toMatch(/rt-\d/)
  })

  it.each([
    ['an empty file', '', 1],
    ['a JSON list', `[${lineOf(1)}]`, 1],
    ['only broken lines', 'a\nb\n', 1],
  ])('`credentials adopt` sends no request for %s', async (_, content, code) => {
    expect((await adopt(content, '--yes')).code).toBe(code)
    expect(sent()).toEqual([])
  })

  it('`credentials adopt` fails if the file cannot be read', async () => {
    for (const path of [join(folder, 'absent'), folder]) {
      const command = ['credentials', 'adopt', '--file', path, '--yes']
      expect(await run(command, service)).toMatchObject({
        code: 1,
        err: expect.stringContaining('cannot be read'),
      })
    }
  })

  it('`credentials adopt` prints the line numbers of the file, even if it sends the lines in several requests', async () => {
    const lines = Array.from({ length: 120 }, (_, n) => lineOf(n + 1))
    const { code, json } = await adopt(`\n${lines.join('\n')}`, '--yes', '--json')
    expect(code).toBe(0)
    expect(calls).toBe(3)
    expect((json as GrantResult[]).map(({ Line, Name }) => [Line, Name])).toEqual(
      lines.map((_, n) => [n + 2, `ACC-${n + 1}`]),
    )
  })

  it("`credentials adopt` reports the provider's error, and exits with 1", async () => {
    resultOf = () => ({
      Outcome: 'refused',
      Code: 'invalid_grant',
      Reason: 'the provider responded:\n\u001b[2J{"error":"invalid_grant"}',
      TraceId: 'tid-1',
    })
    const { code, out } = await adopt(lineOf(1), '--yes')
    expect(code).toBe(1)
    expect(out.split('\n')[0]).toBe(
      'Line 1, ACC-1: refused (version 1; invalid_grant; the provider responded: �[2J{"error":"invalid_grant"}; trace id tid-1)',
    )
  })

  it('`credentials adopt` sends a line again only if the outcome of the line was `unavailable`', async () => {
    const tries = new Map<string, number>()
    resultOf = ({ Realm }) => {
      tries.set(Realm, (tries.get(Realm) ?? 0) + 1)
      return Realm === '2' && tries.get(Realm) === 1 ? { Outcome: 'unavailable' } : {}
    }
    const { code, out } = await adopt(`${lineOf(1)}\n${lineOf(2)}`, '--yes')
    expect(code).toBe(0)
    expect([...tries]).toEqual([
      ['1', 1],
      ['2', 2],
    ])
    expect(out).toContain('2 stored')
  })

  it('`credentials adopt` repeats its request while token-service restarts', async () => {
    failing = (call) =>
      call === 1
        ? { status: 200, body: '{', isCut: true }
        : call === 2
          ? problem(503, 'store_unavailable')
          : undefined
    const { code, err } = await adopt(lineOf(1), '--yes')
    expect([code, calls]).toEqual([0, 3])
    expect(err).toContain('Trying again')
  })

  it.each([
    [401, 'unauthorized', 5],
    [403, 'forbidden', 5],
    [400, 'invalid_request', 1],
  ])(
    '`credentials adopt` stops if token-service responds with the status %i',
    async (status, name, code) => {
      failing = () => problem(status, name)
      const result = await adopt(lineOf(1), '--yes')
      expect([result.code, calls]).toEqual([code, 1])
      expect(result.err).toContain('Run it again with the same file')
    },
  )

  it('`credentials adopt` fails if the service cannot be reached for two minutes', async () => {
    failing = () => problem(503, 'shutting_down')
    let now = 0
    const command = ['credentials', 'adopt', '--file', await fileOf(lineOf(1)), '--yes']
    const { code } = await run(command, { ...service, now: () => (now += 70_000) })
    expect(code).toBe(1)
    expect(calls).toBe(3)
  })

  it('`credentials adopt` fails before the prompt if the service cannot be reached', async () => {
    await service[Symbol.asyncDispose]()
    const path = await fileOf(lineOf(1))
    const { code, err } = await run(['credentials', 'adopt', '--file', path], {
      url: service.url,
      typed: [],
    })
    expect([code, err]).toEqual([5, expect.not.stringContaining('Adopt 1 grant?')])
    service = await startFakeService({})
  })

  it('`credentials adopt` stops at a signal and prints how to continue', async () => {
    const stop = new AbortController()
    failing = () => {
      stop.abort(new CommandFailed(130, 'Stopped by SIGINT.'))
      return problem(503, 'shutting_down')
    }
    const path = await fileOf(lineOf(1))
    const { code, err } = await run(['credentials', 'adopt', '--file', path, '--yes'], {
      ...service,
      stop: stop.signal,
    })
    expect([code, err]).toEqual([130, expect.stringContaining('Run it again')])
  })
})
