import { createHash } from 'node:crypto'
import {
  chmod,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseKeyList } from '@integration-host/shared/access/key-list'
import { startProcess } from '@integration-host/shared/test-support/start-process'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { run } from '../../test-support/run.ts'

let folder: string
let file: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'keys-'))
  file = join(folder, 'service_keys.json')
})
afterEach(() => rm(folder, { recursive: true }))

const keys = (...args: readonly string[]) =>
  run(['keys', ...args], { env: { SERVICE_KEYS_FILE: file } })
const erp = ['new', '--id', 'erp', '--scope', 'gateway:read', '--realm', '93414*']
const stored = async () => parseKeyList(await readFile(file, 'utf8'))

describe('the command `keys new`', () => {
  it('`keys new` prints the new key once, and adds the digest of the key to a key file with mode 0600', async () => {
    const { code, out, err } = await keys(
      ...'new --id erp --scope gateway:read,gateway:write --scope transactions:queue'.split(' '),
      ...'--realm 93414* --realm 9130 --process OrderProcess'.split(' '),
      ...'--expires 2099-01-31T00:00:00+01:00'.split(' '),
    )
    const key = out.trimEnd()
    expect(code).toBe(0)
    expect(key).toMatch(/^ihk_[\w-]{43}$/)
    expect(err).not.toContain(key)
    expect((await stored()).list).toEqual([
      {
        id: 'erp',
        sha256: createHash('sha256').update(key).digest('hex'),
        scopes: ['gateway:read', 'gateway:write', 'transactions:queue'],
        realms: ['93414*', '9130'],
        processes: ['OrderProcess'],
        expires: '2099-01-30T23:00:00Z',
      },
    ])
    expect((await stat(file)).mode & 0o777).toBe(0o600)
    expect(await readFile(file, 'utf8')).not.toContain(key)
  })

  it('`keys new --json` prints the key and its permissions, but no digest', async () => {
    const { json } = await keys(...erp, '--json')
    expect(json).toEqual([
      {
        key: expect.stringMatching(/^ihk_/),
        id: 'erp',
        scopes: ['gateway:read'],
        realms: ['93414*'],
        processes: [],
      },
    ])
  })

  it.each([
    ['90d', 90 * 86_400_000],
    ['12h', 12 * 3_600_000],
  ])('`keys new --expires %s` stores the time at which the key expires', async (duration, ms) => {
    const before = Date.now()
    await keys(...erp, '--expires', duration)
    const at = Date.parse((await stored()).list?.[0]?.expires ?? '')
    expect(at).toBeGreaterThan(before + ms - 1_001)
    expect(at).toBeLessThanOrEqual(Date.now() + ms)
  })

  it.each([
    ['--id is needed', ['--scope', 'audit:read']],
    ['--id must be 1-31 of', ['--id', 'a\nb', '--scope', 'audit:read']],
    ['--scope must name a scope', ['--id', 'erp']],
    ['--scope must be one of gateway:read', ['--id', 'erp', '--scope', 'gateway:admin']],
    ['--realm is needed for the scope', ['--id', 'erp', '--scope', 'custody:transfer']],
    [
      '--process is needed for the scope',
      ['--id', 'erp', '--scope', 'transactions:read', '--realm', '*'],
    ],
    ['--realm must be a name, a prefix', [...erp.slice(1), '--realm', '9*4']],
    ['--process must be a name, a prefix', [...erp.slice(1), '--process', '**']],
    ['--expires must be a duration', [...erp.slice(1), '--expires', 'tomorrow']],
    ['--expires must be a duration', [...erp.slice(1), '--expires', '2027-01-31']],
    ['--expires must be in the future', [...erp.slice(1), '--expires', '2020-01-31T00:00:00Z']],
    ['--expires must be in the future', [...erp.slice(1), '--expires', '0d']],
    ["Unexpected argument 'more'", [...erp.slice(1), 'more']],
    ['--file instead of --url', [...erp.slice(1), '--url', 'http://127.0.0.1:1']],
  ])('`keys new` reports "%s" and writes nothing for the arguments %j', async (message, args) => {
    const { code, out, err } = await keys('new', ...args)
    expect({ code, out }).toEqual({ code: 2, out: '' })
    expect(err).toContain(message)
    expect(await readdir(folder)).toEqual([])
  })

  it('`keys new` rejects an id that the key file already contains, and does not change the file', async () => {
    await keys(...erp)
    const before = await readFile(file, 'utf8')
    const { code, out, err } = await keys(...erp)
    expect({ code, out }).toEqual({ code: 1, out: '' })
    expect(err).toContain('already has a key erp')
    expect(await readFile(file, 'utf8')).toBe(before)
  })

  it('`keys new` sets the mode of the key file to 0600, and does not replace a symbolic link to the key file', async () => {
    await keys(...erp)
    const link = join(folder, 'link')
    await symlink(file, link)
    await chmod(file, 0o644)
    expect((await keys('new', '--id', 'b', '--scope', 'audit:read', '--file', link)).code).toBe(0)
    expect((await stored()).list).toHaveLength(2)
    expect((await stat(file)).mode & 0o777).toBe(0o600)
  })

  it('no key is lost if several OS processes add keys to a file at the same time', async () => {
    const program = join(import.meta.dirname, '../main.ts')
    const ids = Array.from({ length: 6 }, (_, index) => `key-${index}`)
    await using all = new AsyncDisposableStack()
    const started = ids.map((id) =>
      all.use(
        startProcess(
          [program, 'keys', 'new', '--id', id, '--scope', 'audit:read', '--file', file],
          {},
        ),
      ),
    )
    await Promise.all(started.map((one) => one.waitForOutput(/^ihk_/m)))
    expect((await stored()).list?.map(({ id }) => id).toSorted()).toEqual(ids)
  })
})

describe('the command `keys list`', () => {
  it('`keys list` prints each key with its scopes, realms, processes and expiry, and marks an expired key', async () => {
    await keys(...erp)
    await keys('new', '--id', 'old', '--scope', 'audit:read', '--expires', '1h')
    const text = await readFile(file, 'utf8')
    await writeFile(file, text.replace(/"expires": "[^"]*"/, '"expires": "2020-01-01T00:00:00Z"'))
    const { code, out } = await keys('list')
    expect(code).toBe(0)
    expect(out).toMatch(/^erp +gateway:read +93414\* +never$/m)
    expect(out).toMatch(/^old +audit:read +2020-01-01T00:00:00Z \(expired\)$/m)
    expect(out).not.toMatch(/[0-9a-f]{64}/)
  })

  it('`keys list --json` prints one key on each line, without the digest of the key', async () => {
    await keys(...erp)
    const { json } = await keys('list', '--json')
    expect(json).toEqual([
      { id: 'erp', scopes: ['gateway:read'], realms: ['93414*'], processes: [] },
    ])
  })
})

describe('the command `keys revoke`', () => {
  it('`keys revoke` removes the key with the given id and no other key', async () => {
    await keys(...erp)
    await keys('new', '--id', 'auditor', '--scope', 'audit:read')
    expect(await keys('revoke', '--id', 'erp')).toMatchObject({ code: 0, out: 'erp is revoked.\n' })
    expect((await stored()).list?.map(({ id }) => id)).toEqual(['auditor'])
  })

  it('`keys revoke` says what could not be withdrawn if no service can be asked, and revokes the key', async () => {
    await keys(...erp)
    const { code, err } = await keys('revoke', '--id', 'erp')
    expect(code).toBe(0)
    expect(err).toContain('unused connect links of erp no longer act, but could not be withdrawn')
    expect(err).toContain('bulk operations of erp no longer act, but could not be withdrawn')
  })

  it('`keys revoke` withdraws the links and operations of the key, or lets them go on with --keep', async () => {
    const requests: string[] = []
    const server = createServer((request, response) => {
      requests.push(`${request.method} ${request.url}`)
      response.setHeader('Content-Type', 'application/json')
      response.end(JSON.stringify({ ConnectLinks: 3, Operations: 1 }))
    })
    await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening))
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    const env = {
      SERVICE_KEYS_FILE: file,
      SERVICE_API_KEY: 'k'.repeat(40),
      TOKEN_SERVICE_URL: url,
      COORDINATOR_URL: url,
    }
    try {
      await keys(...erp)
      const revoked = await run(['keys', 'revoke', '--id', 'erp'], { env })
      expect(revoked).toMatchObject({ code: 0, out: 'erp is revoked.\n' })
      expect(revoked.err).toContain('3 unused connect links of erp were withdrawn.')
      expect(revoked.err).toContain('1 bulk operations of erp were withdrawn.')
      await keys(...erp)
      const kept = await run(['keys', 'revoke', '--id', 'erp', '--keep'], { env })
      expect(kept.err).toContain('3 unused connect links of erp go on without the key.')
      expect(requests).toEqual([
        'DELETE /keys/erp/open',
        'DELETE /keys/erp/open',
        'POST /keys/erp/open/keep',
        'POST /keys/erp/open/keep',
      ])
      expect((await stored()).list).toEqual([])
    } finally {
      await new Promise((closed) => server.close(closed))
    }
  })

  it('`keys revoke --keep` revokes nothing if a service cannot be asked', async () => {
    await keys(...erp)
    expect((await keys('revoke', '--id', 'erp', '--keep')).code).not.toBe(0)
    expect((await stored()).list).toHaveLength(1)
  })

  it('`keys revoke` exits with code 3 if the file has no key with the given id', async () => {
    await keys(...erp)
    const { code, err } = await keys('revoke', '--id', 'crm')
    expect(code).toBe(3)
    expect(err).toContain('has no key crm')
    expect((await stored()).list).toHaveLength(1)
  })
})

describe('the key file of the commands `keys`', () => {
  it.each([erp, ['list'], ['revoke', '--id', 'erp']])(
    '`keys %s` reports every fault of an invalid key file and does not change the file',
    async (...args) => {
      const invalid = '[{"id": "a", "scopes": ["root"]}, {"id": "b", "expire": "never"}]'
      await writeFile(file, invalid)
      const { code, out, err } = await keys(...args)
      expect({ code, out }).toEqual({ code: 1, out: '' })
      expect(err).toContain('is not a valid key file, and was not changed')
      expect(err).toContain('key 1 (a): scopes.0: must be one of')
      expect(err).toContain('key 2 (b): unknown member "expire"')
      expect(await readFile(file, 'utf8')).toBe(invalid)
    },
  )

  it('`keys list` exits with code 1 if the file does not exist, and with code 2 if no file is named', async () => {
    expect(await keys('list')).toMatchObject({ code: 1, err: `${file} does not exist.\n` })
    const { code, err } = await run(['keys', 'list'])
    expect(code).toBe(2)
    expect(err).toContain('--file, or SERVICE_KEYS_FILE')
  })

  it('the commands `keys` use the key file of the embedded host if no other file is named', async () => {
    await mkdir(join(folder, 'secrets'))
    const embedded = join(folder, 'secrets', 'service_keys.json')
    await writeFile(embedded, '[]')
    expect(await run(['keys', ...erp], { env: { DATA_DIR: folder } })).toMatchObject({ code: 0 })
    expect(parseKeyList(await readFile(embedded, 'utf8')).list).toHaveLength(1)
  })

  it('`keys new` exits with code 1 if the folder does not exist', async () => {
    const { code, err } = await keys(...erp, '--file', join(folder, 'gone', 'keys.json'))
    expect(code).toBe(1)
    expect(err).toContain('cannot be used (ENOENT)')
  })
})
