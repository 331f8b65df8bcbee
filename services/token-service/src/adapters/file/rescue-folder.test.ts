import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { auditContextOf, grantOf, START } from '../../../test-support/grants.ts'
import { testKeys } from '../../../test-support/service-fixture.ts'
import type { KeptPair } from '../../credential/restoration.ts'
import { openRescueFolder } from './rescue-folder.ts'

const pair: KeptPair = {
  name: 'ACC-1',
  version: 7,
  grantId: 'grant one',
  isNewGrant: false,
  grant: grantOf('ACC-1', 'seven', { expiryNoticeDays: 30, hardExpiresAt: START + 1_000 }),
  dueAt: START,
  context: auditContextOf('refreshed', { reason: 'the provider is back' }),
  isNoticeNew: true,
}
const keys = testKeys()
let folder: string
let logged: object[]
const logger = { error: (data: object) => void logged.push(data) } as never

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'rescue-'))
  logged = []
})
afterEach(() => rm(folder, { recursive: true }))

const open = (ring = keys) => openRescueFolder(folder, { keys: ring, logger })
const onlyFile = async (): Promise<string> => {
  const [name = '', ...others] = await readdir(folder)
  expect(others).toEqual([])
  return join(folder, name)
}

describe('the folder for rescued token pairs', () => {
  it('the rescue folder returns a saved token pair unchanged, and deletes its file on request', async () => {
    const rescue = await open()
    await rescue.save(pair)
    const [found, ...others] = await (await open()).read()
    expect(others).toEqual([])
    expect(found?.pair).toEqual(pair)
    expect(found?.pair.grant.refreshToken?.reveal()).toBe('refresh seven')
    await found?.remove()
    expect(await readdir(folder)).toEqual([])
  })

  it('the rescue folder writes files that only their owner can read and that contain no token in plain text', async () => {
    await (await open()).save(pair)
    const file = await onlyFile()
    expect(((await stat(file)).mode & 0o777).toString(8)).toBe('600')
    expect(await readFile(file, 'utf8')).not.toMatch(/seven/)
  })

  it.each([
    ['that was encrypted with another key', (text: string) => text, testKeys()],
    ['that was moved to another company', (text: string) => text.replace('ACC-1', 'ACC-2'), keys],
    ['that was moved to another version', (text: string) => text.replace('7', '8'), keys],
    ['that is truncated', (text: string) => text.slice(0, -9), keys],
    ['that another program wrote', () => '{"Format":"other"}', keys],
  ])(
    'the rescue folder logs the name of a file %s, and does not delete the file',
    async (_, change, ring) => {
      await (await open()).save(pair)
      const file = await onlyFile()
      const changed = change(await readFile(file, 'utf8'))
      await writeFile(file, changed)
      expect(await (await open(ring)).read()).toEqual([])
      expect(logged).toMatchObject([
        {
          file: 'ACC-1.7.rescue.json',
          reason: expect.any(String),
          remedy: expect.any(String),
        },
      ])
      expect(JSON.stringify(logged)).not.toContain('Envelope')
      expect(await readFile(await onlyFile(), 'utf8')).toBe(changed)
    },
  )

  it('opening the rescue folder creates the folder, and fails if the folder cannot be created', async () => {
    await openRescueFolder(join(folder, 'a', 'b'), { keys, logger })
    expect(await readdir(join(folder, 'a'))).toEqual(['b'])
    await writeFile(join(folder, 'file'), '')
    await expect(openRescueFolder(join(folder, 'file', 'c'), { keys, logger })).rejects.toThrow(
      /^RESCUE_DIR: .+ cannot be written \(ENOTDIR\)$/,
    )
  })
})
