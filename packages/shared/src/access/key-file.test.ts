import { mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { z } from 'zod'
import { eventually } from '../../test-support/eventually.ts'
import { createHealth } from '../observability/health.ts'
import { createLogger } from '../observability/logger.ts'
import { createMetrics } from '../observability/metrics.ts'
import { parseConfig } from '../process/config.ts'
import { Secret } from '../secrets/secret.ts'
import { digestOf } from './access-keys.ts'
import { keyFile, openAccessKeys } from './key-file.ts'

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

function open(SERVICE_KEYS_FILE = read()) {
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
    using opened = open()
    expect(opened.isAccepted('erp')).toBe(true)
    expect(await opened.valid()).toBe('1')
    await writeFile(file, listOf('console'))
    await eventually(() => expect(opened.isAccepted('console')).toBe(true))
    expect(opened.isAccepted('erp')).toBe(false)
  })

  it('a revoked key is rejected within a second', async () => {
    await writeFile(file, listOf('erp', 'console'))
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
    using opened = open()
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
    using opened = open(settings)
    await eventually(() => expect(opened.isAccepted('console')).toBe(true))
    expect(opened.isAccepted('erp')).toBe(false)
  })

  it('the keys of a key file stay valid if its folder can no longer be read', async () => {
    await writeFile(file, listOf('erp'))
    using opened = open()
    await rename(file, `${file}.away`)
    await symlink(file, file) // a symbolic link to itself, whose reading fails with ELOOP
    await eventually(() => expect(opened.reported()).toMatchObject({ status: 'down' }))
    expect(opened.isAccepted('erp')).toBe(true)
  })

  it('a new key file takes effect if a symbolic link is changed to point to it, as in Kubernetes', async () => {
    await writeFile(join(folder, 'first'), listOf('erp'))
    await writeFile(join(folder, 'second'), listOf('console'))
    await symlink('first', file)
    using opened = open()
    await symlink('second', `${file}.new`)
    await rename(`${file}.new`, file)
    await eventually(() => expect(opened.isAccepted('console')).toBe(true))
    expect(opened.isAccepted('erp')).toBe(false)
  })

  it('while a changed key file is invalid, the service uses the last valid keys and reports the fault', async () => {
    await writeFile(file, listOf('erp'))
    using opened = open()
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
    using opened = open()
    await rm(file)
    await eventually(() => expect(opened.reported()).toMatchObject({ status: 'down' }))
    expect(opened.isAccepted('erp')).toBe(true)
    await writeFile(file, listOf('erp'))
    await eventually(() => expect(opened.reported()).toMatchObject({ status: 'up' }))
  })
})
