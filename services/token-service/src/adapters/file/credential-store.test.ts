import { chmod, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import type { KeyRing } from '@integration-host/shared/secrets/envelope'
import { StartupError } from '@integration-host/shared/process/lifecycle'
import { auditContextOf, grantOf } from '../../../test-support/grants.ts'
import { openTestFile, testKeys } from '../../../test-support/service-fixture.ts'
import { credentialLabelsContract } from '../../credential/credential-labels.contract.ts'
import { credentialListsContract } from '../../credential/credential-lists.contract.ts'
import {
  credentialStoreContract,
  type StoredRecords,
} from '../../credential/credential-store.contract.ts'
import { createFileCredentialStore } from './credential-store.ts'

const keys = testKeys()
let current: Awaited<ReturnType<typeof openTestFile>> | undefined
let reopened: AsyncDisposable | undefined

afterEach(async () => {
  await reopened?.[Symbol.asyncDispose]()
  await current?.remove()
  reopened = undefined
  current = undefined
})

async function open() {
  current = await openTestFile(keys)
  return current
}

async function reopen() {
  await current?.store[Symbol.asyncDispose]()
  const again = await createFileCredentialStore(current?.folder ?? '', keys)
  reopened = again
  return again
}

const contractOptions = {
  open: async () => (await open()).store,
  reopen,
  async edit(change: (records: StoredRecords) => void) {
    await current?.store[Symbol.asyncDispose]()
    const path = join(current?.folder ?? '', 'credentials.json')
    const state = JSON.parse(await readFile(path, 'utf8')) as { credentials: StoredRecords }
    change(state.credentials)
    await writeFile(path, JSON.stringify(state))
    return reopen()
  },
}
credentialStoreContract('the credential file', contractOptions)
credentialLabelsContract('the credential file', contractOptions)
credentialListsContract('the credential file', contractOptions)

const grant = grantOf('ACC-1', 'canary', { idToken: null })

describe('the credential file of the embedded host', () => {
  const startupError = async (folder: string, ring: KeyRing = keys): Promise<string> => {
    try {
      reopened = await createFileCredentialStore(folder, ring)
    } catch (error) {
      expect(error).toBeInstanceOf(StartupError)
      return (error as Error).message
    }
    throw new Error('the store was opened')
  }

  it('the file store writes the credential file with mode 0600 and encrypted secrets, and deletes its temporary file', async () => {
    const { folder, store } = await open()
    await store.put(grant, Date.now(), auditContextOf('granted'))
    const path = join(folder, 'credentials.json')
    expect((await stat(path)).mode & 0o777).toBe(0o600)
    const text = await readFile(path, 'utf8')
    expect(text).toContain('ACC-1')
    expect(text).not.toContain('canary-')
    expect((await readdir(folder)).toSorted()).toEqual([
      'credentials.json',
      'credentials.json.lock.sqlite',
    ])
  })

  it('the file store rejects a second process that opens the same folder, with an error that names the folder', async () => {
    const { folder } = await open()
    expect(await startupError(folder)).toContain(`${folder} is in use by another process`)
  })

  it.each([
    ['is truncated', (text: string) => text.slice(0, -10)],
    ['is empty', () => ''],
    ['contains the JSON of another program', () => '{"hello": 1}'],
    ['has a later format', (text: string) => text.replace('"format":1', '"format":2')],
  ])(
    'the file store throws StartupError for a credential file that %s, and leaves the file unchanged',
    async (_, damage) => {
      const { folder, store } = await open()
      await store.put(grant, Date.now(), auditContextOf('granted'))
      await store[Symbol.asyncDispose]()
      const path = join(folder, 'credentials.json')
      const damaged = damage(await readFile(path, 'utf8'))
      await writeFile(path, damaged)
      expect(await startupError(folder)).toContain(`${path} is damaged`)
      expect(await readFile(path, 'utf8')).toBe(damaged)
    },
  )

  it('opening a credential file that was encrypted with other keys fails with StartupError and does not change the file', async () => {
    const { folder, store } = await open()
    await store.put(grant, Date.now(), auditContextOf('granted'))
    await store[Symbol.asyncDispose]()
    const path = join(folder, 'credentials.json')
    const before = await readFile(path, 'utf8')
    expect(await startupError(folder, testKeys())).toContain(
      `${path} was written with other CREDENTIAL_KEYS`,
    )
    expect(await readFile(path, 'utf8')).toBe(before)
  })

  it('the file store throws store_unavailable after a failed write, and keeps its file and its state in memory unchanged', async () => {
    const { folder, store } = await open()
    await store.put(grant, Date.now(), auditContextOf('granted'))
    // A folder at the path of the temporary file makes every write fail, even for root.
    const { mkdir, rmdir } = await import('node:fs/promises')
    await mkdir(join(folder, 'credentials.json.tmp'))
    const another = { ...grant, name: 'ACC-2' }
    await expect(store.put(another, Date.now(), auditContextOf('granted'))).rejects.toMatchObject({
      code: 'store_unavailable',
    })
    await expect(store.acquire('ACC-1', 'a', 60_000)).rejects.toMatchObject({
      code: 'store_unavailable',
    })
    expect(await store.get('ACC-2')).toBeNull()
    await rmdir(join(folder, 'credentials.json.tmp'))
    expect(await store.acquire('ACC-1', 'b', 60_000)).toMatchObject({ kind: 'acquired' })
    await store.put(another, Date.now(), auditContextOf('granted'))
    expect(await store.get('ACC-2')).not.toBeNull()
  })

  it('the file store sets the mode of a credential file to 0600 if other users could read it', async () => {
    const { folder, store } = await open()
    await store.put(grant, Date.now(), auditContextOf('granted'))
    await store[Symbol.asyncDispose]()
    const path = join(folder, 'credentials.json')
    await chmod(path, 0o644)
    reopened = await createFileCredentialStore(folder, keys)
    expect((await stat(path)).mode & 0o777).toBe(0o600)
  })
})
