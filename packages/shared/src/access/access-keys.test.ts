import { describe, expect, it, afterEach, beforeEach, vi } from 'vitest'
import { Secret } from '../secrets/secret.ts'
import { AccessKeys, keyFile, openAccessKeys } from './access-keys.ts'
import { digestOf, type KeyEntry } from './key-list.ts'
import { SCOPES } from './scope.ts'
import { mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { z } from 'zod'
import { eventually } from '../../test-support/eventually.ts'
import { createHealth } from '../observability/health.ts'
import { createLogger } from '../observability/logger.ts'
import { createMetrics } from '../observability/metrics.ts'
import { parseConfig } from '../process/config.ts'

const SERVICE_KEY = 's'.repeat(32)
const ERP_KEY = 'e'.repeat(32)
const erp: KeyEntry = {
  id: 'erp',
  sha256: digestOf(ERP_KEY),
  scopes: ['gateway:read', 'transactions:queue'],
  realms: ['123', 'test-*'],
  processes: ['OrderProcess'],
}

function open(entries: readonly KeyEntry[] = [erp], now = { ms: 0 }) {
  const keys = new AccessKeys([new Secret(SERVICE_KEY)], { now: () => now.ms })
  keys.replaceList(entries)
  return { keys, now, caller: () => keys.identify(`Bearer ${ERP_KEY}`) }
}

describe('the class AccessKeys', () => {
  it('a service key has every scope except act-for, for all realms and processes', () => {
    const caller = open().keys.identify(`Bearer ${SERVICE_KEY}`)
    expect(SCOPES.filter((scope) => !caller?.has(scope))).toEqual(['act-for'])
    expect(caller?.mayUseRealm('9341453908059889')).toBe(true)
    expect(caller?.mayUseProcess('InvoiceExport')).toBe(true)
    expect(caller?.name).toBe(`key ${digestOf(SERVICE_KEY).slice(0, 8)}`)
  })

  it('a key of the key file has the scopes, realms and processes of its entry', () => {
    const caller = open().caller()
    expect(SCOPES.filter((scope) => caller?.has(scope))).toEqual(erp.scopes)
    expect(['123', 'test-1', 'test-'].every((realm) => caller?.mayUseRealm(realm))).toBe(true)
    expect(['1234', '12', 'test', 'Test-1', ''].some((realm) => caller?.mayUseRealm(realm))).toBe(
      false,
    )
    expect(caller?.mayUseProcess('OrderProcess')).toBe(true)
    expect(caller?.mayUseProcess('OrderProcess2')).toBe(false)
    expect(caller?.name).toBe('key erp')
  })

  it('a key that is removed from the key file is rejected immediately, even if an earlier request used it', () => {
    const { keys, caller } = open()
    expect(caller()).not.toBeNull()
    keys.replaceList([])
    expect(caller()).toBeNull()
    expect(keys.identify(`Bearer ${SERVICE_KEY}`)).not.toBeNull()
  })

  it('a key whose scopes are changed in the key file has the new scopes immediately', () => {
    const { keys, caller } = open()
    expect(caller()?.has('gateway:write')).toBe(false)
    keys.replaceList([{ ...erp, scopes: ['gateway:write'] }])
    expect(caller()?.has('gateway:write')).toBe(true)
  })

  it('a key is rejected from the time at which it expires', () => {
    const expires = '2027-01-31T12:00:00+01:00'
    const { caller, now } = open([{ ...erp, expires }])
    now.ms = Date.parse(expires) - 1
    expect(caller()).not.toBeNull()
    now.ms += 1
    expect(caller()).toBeNull()
  })

  it.each(['Bearer  ', 'bearer   ', 'BEARER '])(
    'a key is read after the scheme "%s", in any case and with several spaces behind it',
    (scheme) => {
      expect(open().keys.identify(`${scheme}${SERVICE_KEY}`)).not.toBeNull()
    },
  )

  it.each(['Bearer\t', 'Bearer', `Bearer ${' '.repeat(64)}`, 'Basic '])(
    'a key is not read after %j',
    (scheme) => {
      expect(open().keys.identify(`${scheme}${SERVICE_KEY}`)).toBeNull()
    },
  )

  it('the digest of a key is not accepted as a key', () => {
    expect(open().keys.identify(`Bearer ${erp.sha256}`)).toBeNull()
  })

  it('a service key keeps all its scopes even if an entry in the key file contains the same key with fewer scopes', () => {
    const { keys } = open([{ ...erp, sha256: digestOf(SERVICE_KEY), scopes: ['gateway:read'] }])
    expect(keys.identify(`Bearer ${SERVICE_KEY}`)?.has('custody:transfer')).toBe(true)
  })

  it('a caller that acts for a person is logged together with the name of the person', () => {
    expect(open().caller()?.actingFor('ada@example.com').name).toBe('key erp for ada@example.com')
  })
})

const Config = z.object({ SERVICE_KEYS_FILE: keyFile().optional() })
const key = (id: string) => `${id}-`.padEnd(40, 'k')
const entry = (id: string) => ({ id, sha256: digestOf(key(id)), scopes: ['gateway:read'] })
const listOf = (...ids: string[]) => JSON.stringify(ids.map(entry))

let folder: string
let file: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'keys-'))
  file = join(folder, 'keys.json')
})
afterEach(async () => {
  vi.useRealTimers()
  await rm(folder, { recursive: true })
})

const read = () => parseConfig(Config, { SERVICE_KEYS_FILE: file }).SERVICE_KEYS_FILE

function openFile(SERVICE_KEYS_FILE = read()) {
  const lines: string[] = []
  const logger = createLogger('test', 'info', { write: (line: string) => void lines.push(line) })
  const health = createHealth(logger)
  const metrics = createMetrics('test')
  const config = { SERVICE_API_KEY: [new Secret('s'.repeat(32))], SERVICE_KEYS_FILE }
  const { keys, [Symbol.dispose]: dispose } = openAccessKeys(config, { logger, health, metrics })
  return {
    lines,
    isAccepted: (id: string) => keys.identify(`Bearer ${key(id)}`) !== null,
    reported: () => health.report().dependencies['service-keys-file'],
    isReady: () => health.report().status,
    valid: async () => /^service_keys_file_valid.* (\d)$/m.exec(await metrics.read())?.[1],
    [Symbol.dispose]: dispose,
  }
}

describe('the key file of a service', () => {
  it('a service with a missing or invalid key file does not start, and one message names every fault', async () => {
    expect(read).toThrow('SERVICE_KEYS_FILE: the file cannot be read (ENOENT)')
    await writeFile(
      file,
      JSON.stringify([
        { ...entry('a'), scopes: ['x'] },
        { ...entry('b'), id: '' },
      ]),
    )
    expect(read).toThrow(
      /^The settings are not usable:\n {2}SERVICE_KEYS_FILE: key 1 \(a\): scopes.*\n {2}SERVICE_KEYS_FILE: key 2: id: /,
    )
    await writeFile(file, '')
    expect(read).toThrow('SERVICE_KEYS_FILE: is not JSON')
  })

  it('a changed key file takes effect without a restart', async () => {
    await writeFile(file, listOf('erp'))
    using opened = openFile()
    expect(opened.isAccepted('erp')).toBe(true)
    expect(await opened.valid()).toBe('1')
    await writeFile(file, listOf('console'))
    await eventually(() => expect(opened.isAccepted('console')).toBe(true))
    expect(opened.isAccepted('erp')).toBe(false)
  })

  it('a revoked key is rejected within a second', async () => {
    await writeFile(file, listOf('erp', 'console'))
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
    using opened = openFile()
    expect(opened.isAccepted('erp')).toBe(true)
    await writeFile(file, listOf('console'))
    vi.advanceTimersByTime(1_000)
    expect(opened.isAccepted('erp')).toBe(false)
    expect(opened.isAccepted('console')).toBe(true)
  })

  it('a change of the key file takes effect even if it is made directly after the service has started', async () => {
    await writeFile(file, listOf('erp'))
    const settings = read()
    await writeFile(file, listOf('console'))
    using opened = openFile(settings)
    await eventually(() => expect(opened.isAccepted('console')).toBe(true))
    expect(opened.isAccepted('erp')).toBe(false)
  })

  it('the keys of a key file stay valid if its folder can no longer be read', async () => {
    await writeFile(file, listOf('erp'))
    using opened = openFile()
    await rename(file, `${file}.away`)
    await symlink(file, file) // a symbolic link to itself, whose reading fails with ELOOP
    await eventually(() => expect(opened.reported()).toMatchObject({ status: 'down' }))
    expect(opened.isAccepted('erp')).toBe(true)
  })

  it('a new key file takes effect if a symbolic link is changed to point to it, as in Kubernetes', async () => {
    await writeFile(join(folder, 'first'), listOf('erp'))
    await writeFile(join(folder, 'second'), listOf('console'))
    await symlink('first', file)
    using opened = openFile()
    await symlink('second', `${file}.new`)
    await rename(`${file}.new`, file)
    await eventually(() => expect(opened.isAccepted('console')).toBe(true))
    expect(opened.isAccepted('erp')).toBe(false)
  })

  it('while a changed key file is invalid, the service uses the last valid keys and reports the fault', async () => {
    await writeFile(file, listOf('erp'))
    using opened = openFile()
    await writeFile(file, '[{"id":"console"}]')
    await eventually(() => expect(opened.reported()).toMatchObject({ status: 'down' }))
    expect(opened.isAccepted('erp')).toBe(true)
    expect(opened.isReady()).toBe('ready')
    expect(await opened.valid()).toBe('0')
    expect(opened.lines.join('')).toContain('key 1 (console): sha256')
    await writeFile(file, listOf('console'))
    await eventually(() => expect(opened.reported()).toMatchObject({ status: 'up' }))
    expect(opened.isAccepted('console')).toBe(true)
    expect(await opened.valid()).toBe('1')
  })

  it('a service continues to use the keys of a key file that is deleted while the service runs', async () => {
    await writeFile(file, listOf('erp'))
    using opened = openFile()
    await rm(file)
    await eventually(() => expect(opened.reported()).toMatchObject({ status: 'down' }))
    expect(opened.isAccepted('erp')).toBe(true)
    await writeFile(file, listOf('erp'))
    await eventually(() => expect(opened.reported()).toMatchObject({ status: 'up' }))
  })
})
