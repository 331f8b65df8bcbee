import { chown, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { changeKeyList, KeyListInvalid, readKeyList } from './change-key-list.ts'
import { installationKeys, newKey } from './key-list.ts'

let folder: string
let file: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'key-list-'))
  file = join(folder, 'service_keys.json')
})
afterEach(() => rm(folder, { recursive: true }))

const { entry } = newKey(installationKeys.application)

describe('changeKeyList() and readKeyList()', () => {
  it('changeKeyList writes the new list, and readKeyList returns it', async () => {
    expect(await readKeyList(file)).toBeNull()
    await changeKeyList(file, (keys) => [...keys, entry])
    expect(await readKeyList(file)).toEqual([entry])
  })

  it.each([
    ['two keys with one id', [entry, { ...newKey(installationKeys.operator).entry, id: entry.id }]],
    ['one key under two ids', [entry, { ...entry, id: 'other' }]],
  ])('changeKeyList does not write a list that has %s', async (_, list) => {
    await changeKeyList(file, () => [entry])
    const before = await readFile(file, 'utf8')
    await expect(changeKeyList(file, () => list)).rejects.toBeInstanceOf(KeyListInvalid)
    expect(await readFile(file, 'utf8')).toBe(before)
  })

  it('changeKeyList releases the lock if the change fails', async () => {
    const failing = changeKeyList(file, () => {
      throw new Error('no')
    })
    await expect(failing).rejects.toThrow('no')
    await changeKeyList(file, () => [entry])
    expect(await readKeyList(file)).toEqual([entry])
  })

  it.skipIf(process.getuid?.() !== 0)(
    'if root calls changeKeyList, an existing file keeps its owner, and a new file belongs to the owner of the folder',
    async () => {
      await chown(folder, 1000, 1000)
      await changeKeyList(file, () => [])
      expect(await stat(file)).toMatchObject({ uid: 1000, gid: 1000 })
      await chown(file, 1001, 1002)
      await changeKeyList(file, () => [entry])
      expect(await stat(file)).toMatchObject({ uid: 1001, gid: 1002 })
      expect(await stat(`${file}.lock.sqlite`)).toMatchObject({ uid: 1001 })
    },
  )

  it('readKeyList rejects a file that is not a list of keys', async () => {
    await writeFile(file, '{}')
    await expect(readKeyList(file)).rejects.toThrow('must be a list of keys')
  })
})

describe('the keys of a new installation', () => {
  it('the key for applications can queue transactions but approve none, and the key for operators cannot read tokens', () => {
    expect(installationKeys.application.scopes).toEqual([
      'gateway:read',
      'gateway:write',
      'credentials:read',
      'transactions:read',
      'transactions:queue',
    ])
    for (const scope of ['credentials:token', 'custody:transfer', 'act-for'] as const)
      expect(installationKeys.operator.scopes).not.toContain(scope)
    expect(installationKeys.operator.scopes).toHaveLength(9)
    // Who queues a transaction must not approve it.
    for (const { id, scopes } of [installationKeys.operator, installationKeys.console])
      expect([id, scopes.includes('transactions:signal')]).toEqual([id, true])
  })
})
