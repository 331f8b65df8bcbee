import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type FakeService, problem, startFakeService } from '../../test-support/fake-service.ts'
import { run } from '../../test-support/run.ts'

const LINK = { Url: 'http://127.0.0.1:7221/sign-in#secret', ExpiresAt: '2026-11-24T07:00:00.000Z' }

describe('the command `console sign-in`', () => {
  let service: FakeService
  let acceptsLinks: boolean
  beforeEach(async () => {
    acceptsLinks = true
    service = await startFakeService({
      'POST /sign-in-links': () =>
        acceptsLinks ? { status: 201, body: LINK } : problem(403, 'forbidden'),
    })
  })
  afterEach(() => service[Symbol.asyncDispose]())
  const signIn = (...args: readonly string[]) =>
    run(['console', 'sign-in', ...args], { env: { CONSOLE_URL: service.url } })

  it('`console sign-in` prints only the link on standard output, so that it can be passed on', async () => {
    const { code, out, err } = await signIn()
    expect([code, out.trim()]).toEqual([0, LINK.Url])
    expect(err).toContain(LINK.ExpiresAt)
    expect(JSON.parse((await signIn('--json')).out)).toEqual(LINK)
  })

  it('`console sign-in` fails if the console does not accept sign-in links', async () => {
    acceptsLinks = false
    const { code, out } = await signIn()
    expect(code).not.toBe(0)
    expect(out).toBe('')
  })
})

describe('the command `console sessions`', () => {
  const SESSION = {
    User: 'eve',
    Role: 'operator',
    Way: 'password',
    Browser: 'Firefox on Linux',
    UsedAt: '2026-11-24T07:00:00.000Z',
    ExpiresAt: '2026-11-24T17:00:00.000Z',
  }
  const requested: string[] = []
  let service: FakeService
  beforeEach(async () => {
    requested.length = 0
    service = await startFakeService({
      'GET /sessions': () => ({ body: { Sessions: [SESSION] } }),
      'DELETE /sessions': ({ query }) => {
        requested.push(query.get('user') ?? '')
        return { body: { Ended: 2 } }
      },
    })
  })
  afterEach(() => service[Symbol.asyncDispose]())
  const sessions = (...args: readonly string[]) =>
    run(['console', 'sessions', ...args], { env: { CONSOLE_URL: service.url } })

  it('`console sessions list` lists the sessions of all persons', async () => {
    const { code, out } = await sessions('list')
    expect(code).toBe(0)
    expect(out).toMatch(/^USER .*\neve +operator +password +Firefox on Linux/)
    expect(JSON.parse((await sessions('list', '--json')).out)).toEqual(SESSION)
  })

  it('`console sessions end` ends the sessions of one person', async () => {
    const { code, out } = await sessions('end', '--user', 'eve+ops@example.com')
    expect([code, out]).toEqual([0, 'Sessions ended: 2\n'])
    expect(requested).toEqual(['eve+ops@example.com'])
  })

  it.each([[[]], [['end']], [['list', '--user', 'eve']], [['end', 'eve']], [['stop']]])(
    '`console sessions` rejects the arguments %j',
    async (args) => {
      const { code, out } = await sessions(...args)
      expect([code, out]).toEqual([2, ''])
    },
  )
})

describe('the command `console password`', () => {
  let folder: string
  let file: string
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'password-'))
    file = join(folder, 'password')
    await writeFile(file, 'a long password\n')
  })
  afterEach(() => rm(folder, { recursive: true }))
  const password = (...args: readonly string[]) =>
    run(['console', 'password', ...args], { env: {} })

  it('`console password` prints a line with the hash of the password, and never the password', async () => {
    const { code, out, err } = await password('ada', '--role', 'operator', '--password-file', file)
    expect(code).toBe(0)
    expect(out).toMatch(/^ada:operator:scrypt\$32768\$8\$1\$[\w-]{22}\$[\w-]{43}\n$/)
    expect(out + err).not.toContain('a long password')
  })

  it('`console password` uses the role viewer unless an option names another role', async () => {
    expect((await password('ada', '--password-file', file)).out).toMatch(/^ada:viewer:/)
  })

  it.each([
    ['an unknown role', ['ada', '--role', 'root']],
    ['a name with a colon', ['a:b']],
    ['no name', []],
    ['two names', ['ada', 'ben']],
  ])('`console password` rejects %s', async (_, args) => {
    const { code, out } = await password(...args, '--password-file', file)
    expect([code, out]).toEqual([2, ''])
  })

  it('`console password` rejects a short password, and fails if there is neither a password file nor a terminal', async () => {
    await writeFile(file, 'short')
    expect((await password('ada', '--password-file', file)).code).toBe(2)
    expect((await password('ada')).code).toBe(2)
  })
})
