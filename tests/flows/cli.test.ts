import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connectCompany } from '../support/clients/user-actions.ts'
import { parseJsonLines, runCli } from '../support/processes/cli.ts'
import { startSystem, type System } from '../support/system.ts'

const PASSPHRASE = 'correct horse battery staple'
const REALMS = ['1', '2', '3']

describe('the CLI with two installations', () => {
  let source: System
  let target: System
  let folder: string

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'cli-'))
    source = await startSystem(['sandbox-provider', 'token-service'])
    target = await startSystem(['sandbox-provider', 'token-service'])
  })
  afterAll(async () => {
    await source[Symbol.asyncDispose]()
    await target[Symbol.asyncDispose]()
    await rm(folder, { recursive: true })
  })

  /** Runs the program with `folder` as the working directory, as a user would. */
  async function cli(system: System, ...args: readonly string[]) {
    const result = await runCli(args, {
      cwd: folder,
      env: {
        TOKEN_SERVICE_URL: system.url('token-service'),
        SERVICE_API_KEY: system.serviceKey,
        EXPORT_PASSPHRASE: PASSPHRASE,
      },
    })
    for (const secret of [system.serviceKey, PASSPHRASE])
      expect(result.stdout + result.stderr).not.toContain(secret)
    return result
  }
  async function json(system: System, ...args: readonly string[]) {
    const { code, stdout } = await cli(system, ...args, '--json')
    return { code, lines: parseJsonLines(stdout) }
  }

  it('the CLI prints the URL at which a user can connect a company, and lists the connected companies', async () => {
    const { code, stdout } = await cli(source, 'credentials', 'connect', '--realm', '1')
    expect([code, stdout]).toEqual([
      0,
      expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+\/.*state=/),
    ])
    for (const realm of REALMS) await connectCompany(source, realm)
    const { lines } = await json(source, 'credentials', 'list')
    expect(lines.map(({ Name, Status }) => [Name, Status])).toEqual(
      REALMS.map((realm) => [`ACC-${realm}`, 'active']),
    )
    expect(await json(source, 'credentials', 'show', 'ACC-1')).toEqual({
      code: 0,
      lines: [lines[0]],
    })
  })

  it('`credentials refresh` refreshes a credential, and exits with code 3 for an unknown credential', async () => {
    expect(await json(source, 'credentials', 'refresh', 'ACC-1')).toMatchObject({
      code: 0,
      lines: [{ Name: 'ACC-1', Version: 2, Status: 'active' }],
    })
    expect(await cli(source, 'credentials', 'refresh', 'ACC-404')).toMatchObject({
      code: 3,
      stdout: '',
    })
  })

  it('`credentials rotate-keys` re-encrypts every credential with the active key', async () => {
    expect(await json(source, 'credentials', 'rotate-keys')).toMatchObject({
      code: 0,
      lines: [{ ActiveKey: 'k1', Total: 3, Current: 3, IsFinished: true }],
    })
  })

  it('the CLI moves credentials to another installation, and the source installation reports them as transferred', async () => {
    const moved = await cli(source, 'credentials', 'export', '--all', '--out', 'all.ndjson')
    expect([moved.code, moved.stdout]).toEqual([0, 'all.ndjson has ACC-1, ACC-2, ACC-3.\n'])
    const file = await readFile(join(folder, 'all.ndjson'), 'utf8')
    expect(JSON.parse(file)).toMatchObject({ Names: ['ACC-1', 'ACC-2', 'ACC-3'] })
    const shown = await cli(source, 'credentials', 'show', 'ACC-1')
    expect([shown.code, shown.stdout]).toEqual([4, expect.stringContaining('transferred')])
    expect((await cli(source, 'credentials', 'refresh', 'ACC-1')).code).toBe(4)

    const imported = await cli(target, 'credentials', 'import', 'all.ndjson')
    expect([imported.code, imported.stdout]).toEqual([0, '3 imported, 0 rejected\n'])
    const { lines } = await json(target, 'credentials', 'list')
    expect(lines.map(({ Status }) => Status)).toEqual(['active', 'active', 'active'])
    const again = await cli(target, 'credentials', 'import', 'all.ndjson')
    expect([again.code, again.stdout]).toEqual([1, '0 imported, 3 rejected\n'])
  })

  it('`credentials import` accepts a file of transferred credentials even at the installation that exported them', async () => {
    expect(await cli(source, 'credentials', 'import', 'all.ndjson')).toMatchObject({ code: 0 })
    expect((await cli(source, 'credentials', 'refresh', 'ACC-1')).code).toBe(0)
  })

  it('`credentials remove` removes a credential only if --yes is given', async () => {
    expect((await cli(source, 'credentials', 'remove', 'ACC-3')).code).toBe(2)
    expect((await cli(source, 'credentials', 'remove', 'ACC-3', '--yes')).code).toBe(0)
    expect((await cli(source, 'credentials', 'show', 'ACC-3')).code).toBe(3)
  })

  it('`audit list` prints the actions of operators, and `audit verify` checks the hash chain of the audit log', async () => {
    const actions = await eventually(async () => {
      const { lines } = await json(source, 'audit', 'list', '--name', 'ACC-3')
      expect(lines.at(-1)).toMatchObject({ What: 'removed' })
      return lines.map(({ What }) => What)
    })
    expect(actions).toEqual(['granted', 'exported', 'imported', 'removed'])
    const { code, lines } = await json(source, 'audit', 'verify')
    expect([code, lines]).toEqual([0, [expect.objectContaining({ First: 1, Break: null })]])
    const head = String(lines[0]?.['Head'])
    expect((await cli(source, 'audit', 'verify', '--expect', head)).code).toBe(0)
    const other = await cli(target, 'audit', 'verify', '--expect', head)
    expect([other.code, other.stderr]).toEqual([1, expect.stringContaining('is broken at entry')])
  })

  it('the CLI exits with code 5 if the service key is wrong or the service is unavailable', async () => {
    const url = source.url('token-service')
    const { code, stderr } = await cli(target, 'credentials', 'list', '--url', url)
    expect([code, stderr]).toEqual([5, expect.stringContaining('rejects the service key')])
    await source.service('token-service').stop('SIGKILL')
    expect((await cli(source, 'credentials', 'list')).code).toBe(5)
  })
})
