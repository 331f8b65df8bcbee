import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import installation from '../../../package.json' with { type: 'json' }
import {
  type FakeService,
  problem,
  SERVICE_KEY,
  startFakeService,
} from '../test-support/fake-service.ts'
import { run } from '../test-support/run.ts'
import { groups, single } from './command-line.ts'
import { CommandFailed } from './exit-code.ts'

const commands = [...groups].flatMap(([group, { commands: words }]) =>
  [...words.keys()].map((word) => [group, word] as const),
)

describe('the help of the command line', () => {
  it.each([[], ['credentials'], ['audit']])(
    'the help for the arguments %j lists the commands with examples',
    async (...path) => {
      const { code, out, err } = await run([...path, '--help'])
      expect([code, err]).toEqual([0, ''])
      for (const [group, word] of commands)
        if (path.length === 0 || path[0] === group) expect(out).toContain(word)
      expect(out).toMatch(/Examples:\n {2}integration-host /)
    },
  )

  it.each(commands)(
    'the help for the command %s %s shows usage and examples, and refers to what all commands have in common',
    async (group, word) => {
      const { code, out, err } = await run([group, word, '-h'])
      expect([code, err]).toEqual([0, ''])
      expect(out).toMatch(new RegExp(`^Usage: integration-host ${group} ${word}`))
      expect(out).toMatch(/Examples:\n {2}/)
      expect(out).toMatch(/\n\nAddresses .* exit codes: integration-host --help\n$/)
    },
  )
})

describe('the help of commands that belong to no group', () => {
  it.each([...single.keys()])(
    'the help for the command %s shows usage and examples, and refers to what all commands have in common',
    async (word) => {
      const { code, out, err } = await run([word, '--help'])
      expect([code, err]).toEqual([0, ''])
      expect(out).toMatch(new RegExp(`^Usage: integration-host ${word}`))
      expect(out).toMatch(/Examples:\n {2}/)
      expect(out).toMatch(/\n\nAddresses .* exit codes: integration-host --help\n$/)
      expect((await run(['--help'])).out).toContain(word)
    },
  )
})

describe('the version of the command line', () => {
  it('`--version` prints the version of the installation', async () => {
    expect(await run(['--version'])).toMatchObject({
      code: 0,
      out: `${installation.version}\n`,
      err: '',
    })
  })

  it('the command line rejects `--version` after a command as an unknown option', async () => {
    const { code, err } = await run(['credentials', 'list', '--version'])
    expect([code, err]).toEqual([2, expect.stringContaining("Unknown option '--version'")])
  })
})

describe('invalid arguments of the command line', () => {
  it.each([
    [[], 'A command is needed'],
    [
      ['nonsense'],
      "There is no command 'nonsense'; there are: credentials, transactions, operations, erasures, dead-letters, processes, companies, schedules, books, console, entries, actions, audit, keys, changes, usage, doctor",
    ],
    [['transaction', 'list'], "Did you mean 'transactions'?"],
    [['docter'], "Did you mean 'doctor'?"],
    [['credentials', 'lst'], "Did you mean 'list'?"],
    [['credentials'], 'A credentials command is needed'],
    [['credentials', 'drop'], "There is no credentials command 'drop'"],
    [['credentials', 'list', '--colour'], "Unknown option '--colour'"],
    [['credentials', 'list', 'ACC-1'], "Unexpected argument 'ACC-1'"],
    [['credentials', 'show'], 'The name of a credential is needed'],
    [['credentials', 'show', 'ACC-1', 'ACC-2'], "Unexpected argument 'ACC-2'"],
    [['credentials', 'show', '../ACC-1'], 'must be ACC-<realm>'],
    [['credentials', 'connect', '--realm', 'a b'], '--realm must be'],
    [['credentials', 'remove', 'ACC-1'], '--yes is needed; nothing was removed'],
    [['credentials', 'export', '--out', 'x'], 'Either names of credentials or --all'],
    [
      ['credentials', 'export', '--all', 'ACC-1', '--out', 'x'],
      'Either names of credentials or --all',
    ],
    [['credentials', 'export', '--all'], '--out FILE is needed'],
    [['credentials', 'import'], 'The file to import is needed'],
    [['audit', 'list', '--since', 'x'], '--since must be a whole number'],
    [['audit', 'list', '--name', 'x'], 'must be ACC-<realm>'],
    [['audit', 'verify', '--expect', '5:abc'], '--expect must be SEQ:HASH'],
    [['credentials', 'list', '--url', 'ftp://x'], '--url must be an http(s) URL'],
    [['doctor', 'redis'], "Unexpected argument 'redis'"],
    [['doctor', '--only', 'redis,oracle'], "--only: there is no 'oracle'; there are: redis"],
    [['doctor', '--timeout', '0'], '--timeout must be 1 to 3600'],
    [['doctor', '--url', 'http://x'], 'doctor checks several services'],
  ])('the command line rejects the arguments %j with exit code 2', async (args, message) => {
    const { code, out, err } = await run(args)
    expect({ code, out }).toEqual({ code: 2, out: '' })
    expect(err).toContain(message)
    expect(err).toMatch(/See: integration-host .*--help\n$/)
  })

  it('the command line does not print the value of an unknown option', async () => {
    const { code, err } = await run(['credentials', 'import', 'x', '--passphrase=correct horse'])
    expect(code).toBe(2)
    expect(err).toContain("Unknown option '--passphrase'")
    expect(err).not.toContain('horse')
  })
})

describe('requests of the command line to token-service', () => {
  let service: FakeService
  let folder: string
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'cli-'))
    service = await startFakeService({
      'GET /credentials': () => ({ body: { items: [], next_cursor: null } }),
      'GET /credentials/ACC-503': () => ({
        ...problem(503, 'store_unavailable', { detail: 'redis is unavailable' }),
        headers: { 'Retry-After': '3' },
      }),
      'GET /credentials/ACC-404': () => problem(404, 'credential_not_found'),
      'GET /credentials/ACC-html': () => ({ status: 502, body: '<html>proxy</html>' }),
      'GET /credentials/ACC-odd': () => ({ body: { Name: 'ACC-odd' } }),
      'GET /credentials/ACC-cut': () => ({ body: '{"Name":', isCut: true }),
      'GET /credentials/ACC-redirect': () => ({
        status: 302,
        headers: { Location: 'http://127.0.0.1:1/steal' },
      }),
      'GET /credentials/ACC-scope': () =>
        problem(403, 'forbidden', {
          detail: 'the service key erp lacks the scope credentials:read',
        }),
      'GET /credentials/ACC-steer': () =>
        problem(500, 'internal_error', { detail: 'red\u001b[31m\nand more' }),
    })
  })
  afterEach(async () => {
    await service[Symbol.asyncDispose]()
    await rm(folder, { recursive: true })
  })
  const list = ['credentials', 'list', '--json']

  it.each([
    ['ACC-404', 3, 'credential_not_found'],
    ['ACC-503', 1, 'redis is unavailable (store_unavailable)\nTry again in 3 s.'],
    ['ACC-html', 5, 'status 502, which is not a response of token-service'],
    ['ACC-redirect', 5, 'status 302, which is not a response of token-service'],
    ['ACC-scope', 5, 'the service key erp lacks the scope credentials:read (forbidden)'],
    ['ACC-odd', 1, 'does not respond as the token-service of this version'],
    ['ACC-cut', 5, 'cannot be reached'],
    ['ACC-steer', 1, 'red�[31m and more'],
  ])(
    '`credentials show %s` exits with code %i and prints the reason on standard error',
    async (name, expected, message) => {
      const { code, out, err } = await run(['credentials', 'show', name], service)
      expect({ code, out }).toEqual({ code: expected, out: '' })
      expect(err).toContain(message)
      expect(err).not.toContain('\u001b')
    },
  )

  it('the command line exits with code 5 if it cannot connect to token-service, and prints the address', async () => {
    const { url } = service
    await service[Symbol.asyncDispose]()
    const { code, out, err } = await run(list, { url })
    service = await startFakeService({})
    expect({ code, out }).toEqual({ code: 5, out: '' })
    expect(err).toContain(`token-service at ${url} cannot be reached (ECONNREFUSED)`)
  })

  it('the command line exits with code 5 if the service rejects the key, and does not print the key', async () => {
    const wrong = 'wrong-service-key-0123456789-0123456789'
    const { code, out, err } = await run(list, { ...service, env: { SERVICE_API_KEY: wrong } })
    expect({ code, out }).toEqual({ code: 5, out: '' })
    expect(err).toContain('rejects the service key')
    expect(err).not.toContain(wrong)
  })

  it('the option --url overrides TOKEN_SERVICE_URL', async () => {
    const elsewhere = { url: 'http://127.0.0.1:1' }
    expect(await run([...list, '--url', service.url], elsewhere)).toMatchObject({ code: 0 })
  })

  it('the command line reads the service key from SERVICE_API_KEY_FILE', async () => {
    const file = join(folder, 'key')
    await writeFile(file, `${SERVICE_KEY}\n`)
    const env = { SERVICE_API_KEY: '', SERVICE_API_KEY_FILE: file }
    expect(await run(list, { ...service, env })).toMatchObject({ code: 0 })
    const gone = { SERVICE_API_KEY: '', SERVICE_API_KEY_FILE: join(folder, 'gone') }
    const { code, err } = await run(list, { ...service, env: gone })
    expect(code).toBe(2)
    expect(err).toContain('SERVICE_API_KEY_FILE: the file cannot be read (ENOENT)')
  })

  it('without a service key, the command line uses the stored key of the embedded host, but only for loopback addresses', async () => {
    const secrets = join(folder, 'secrets')
    await mkdir(secrets)
    await writeFile(join(secrets, 'service_api_key'), SERVICE_KEY)
    const env = { SERVICE_API_KEY: '', DATA_DIR: folder }
    expect(await run(list, { ...service, env })).toMatchObject({ code: 0 })
    const { code, err } = await run([...list, '--url', 'http://token-service.example'], { env })
    expect(code).toBe(2)
    expect(err).toContain('A service key is needed')
  })

  it.each([
    ['the DATA_DIR', 'DATA_DIR=elsewhere\n'],
    ['the SERVICE_API_KEY', `DATA_DIR=other\nSERVICE_API_KEY=${SERVICE_KEY}\n`],
  ])(
    'the command line reads %s from the file .env to get the key of the embedded host',
    async (_, dotEnv) => {
      await mkdir(join(folder, 'elsewhere/secrets'), { recursive: true })
      await writeFile(join(folder, 'elsewhere/secrets/service_api_key'), SERVICE_KEY)
      await writeFile(join(folder, '.env'), dotEnv)
      const before = process.cwd()
      process.chdir(folder)
      try {
        const env = { SERVICE_API_KEY: '', DATA_DIR: '' }
        expect(await run(list, { ...service, env })).toMatchObject({ code: 0 })
      } finally {
        process.chdir(before)
      }
    },
  )

  it('the command line uses the addresses that a running embedded host has stored in its data folder', async () => {
    await mkdir(join(folder, 'secrets'))
    await writeFile(join(folder, 'secrets/service_api_key'), SERVICE_KEY)
    const addresses = { TOKEN_SERVICE_URL: service.url, COORDINATOR_URL: 'http://127.0.0.1:1' }
    await writeFile(join(folder, 'addresses.json'), JSON.stringify(addresses))
    const env = { SERVICE_API_KEY: '', DATA_DIR: folder }
    expect(await run(list, { env })).toMatchObject({ code: 0 })
    expect((await run(['transactions', 'list'], { env })).err).toContain('127.0.0.1:1 cannot be')
    expect((await run(['doctor', '--only', 'coordinator'], { env })).out).toContain('127.0.0.1:1')
    const other = { ...env, TOKEN_SERVICE_URL: 'http://127.0.0.1:2' }
    expect((await run(list, { env: other })).err).toContain('http://127.0.0.1:2 cannot be reached')
  })

  it('the command line aborts a request on SIGINT and exits with the exit code of the signal', async () => {
    const stop = AbortSignal.abort(new CommandFailed(130, 'Stopped by SIGINT.'))
    const { code, err } = await run(list, { ...service, stop })
    expect([code, err]).toEqual([130, 'Stopped by SIGINT.\n'])
  })
})
