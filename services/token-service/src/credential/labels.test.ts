/**
 * Tests what happens to labels when token pairs are transferred, restored, rescued or re-encrypted. All tests use file
 * stores.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { generateKeyRing, parseKeyRing } from '@integration-host/shared/secrets/envelope'
import { Secret } from '@integration-host/shared/secrets/secret'
import { auditContextOf, grantOf, START } from '../../test-support/grants.ts'
import { openTestFile, testKeys } from '../../test-support/service-fixture.ts'
import { createFileCredentialStore } from '../adapters/file/credential-store.ts'
import { openRescueFolder } from '../adapters/file/rescue-folder.ts'
import type { CredentialStore } from './credential-store.ts'
import { openDocument, sealDocument } from './export-document.ts'
import { createRecentPairs } from './recent-pairs.ts'
import type { KeptPair } from './restoration.ts'
import { createTransfers } from './transfer.ts'

const NAME = 'ACC-1'
const LABELS = { label: 'Acme <b> & Söhne', tags: { plan: 'gold' } }
const granted = auditContextOf('granted')
const key = { kind: 'key', key: Buffer.alloc(32, 7) } as const
const sleep = () => new Promise<void>((resolve) => void setImmediate(resolve))
const onError = (error: unknown) => {
  throw error
}

let cleanup: AsyncDisposableStack
beforeEach(() => void (cleanup = new AsyncDisposableStack()))
afterEach(() => cleanup.disposeAsync())

async function openStore(): Promise<CredentialStore> {
  const file = await openTestFile(testKeys())
  cleanup.defer(() => file.remove())
  return file.store
}
const connect = (store: CredentialStore, given: object = {}) =>
  store.put({ ...grantOf(NAME, 'one'), ...given }, START, granted, { id: 'grant one' })

describe('the labels of a transferred credential', () => {
  const transfersOf = (store: CredentialStore) =>
    createTransfers({
      store,
      routine: { refresh: () => Promise.reject(new Error('nothing is refreshed')) },
      refreshAheadMs: 1_000,
      owner: 'test',
      now: () => START,
      sleep,
      notifyOutbox: () => {},
    })

  it('an export contains the labels of a credential, and an import stores them', async () => {
    const [source, target] = [await openStore(), await openStore()]
    await connect(source, LABELS)
    const document = await transfersOf(source).exportCredentials([NAME], key, 'key a')
    expect(JSON.stringify(document)).not.toContain('Acme')
    await transfersOf(target).importCredentials(document, key, { overwrite: false, who: 'key b' })
    expect(await target.get(NAME)).toMatchObject(LABELS)
  })

  it('the import of a document of an earlier release keeps the stored labels', async () => {
    const [source, target] = [await openStore(), await openStore()]
    await connect(source, LABELS)
    await connect(target, { label: 'Here' })
    const exported = await transfersOf(source).exportCredentials([NAME], key, 'key a')
    const [{ label: _, tags: __, ...earlier } = raise()] = await openDocument(exported, key)
    const document = await sealDocument([earlier], key, START)
    await transfersOf(target).importCredentials(document, key, { overwrite: true, who: 'key b' })
    expect(await target.get(NAME)).toMatchObject({ label: 'Here', tags: {}, version: 2 })
  })

  it('a document with invalid labels is rejected', async () => {
    const source = await openStore()
    await connect(source, LABELS)
    const exported = await transfersOf(source).exportCredentials([NAME], key, 'key a')
    const [credential = raise()] = await openDocument(exported, key)
    const document = await sealDocument([{ ...credential, label: 'a\u202eb' }], key, START)
    await expect(openDocument(document, key)).rejects.toMatchObject({ code: 'invalid_request' })
  })
})

describe('the labels of a grant whose token pair was lost by the store', () => {
  it('labels are restored with the newest token pair of the grant, even if they were changed later', async () => {
    let store = await openStore()
    let report: (isEstablished: boolean) => void = () => {}
    const connection = {
      watch(listener: typeof report) {
        report = listener
        return { [Symbol.dispose]: () => {} }
      },
      serverChangedAt: () => null,
    }
    const pairs = cleanup.use(
      createRecentPairs({
        store: following(() => store),
        connection,
        rescue: null,
        owner: 'test',
        sleep,
        notifyOutbox: () => {},
        report: () => {},
        onError,
      }),
    )
    await connect(pairs.store, { label: 'Old', tags: LABELS.tags })
    await pairs.store.label(NAME, { label: LABELS.label }, () => {})
    const acquired = await pairs.store.acquire(NAME, 'a', 60_000)
    if (acquired.kind !== 'acquired') throw new Error(acquired.kind)
    const { lease } = acquired.leased
    const pair = grantOf(NAME, 'two')
    await pairs.store.commit(lease, pair, START, auditContextOf('refreshed'))

    store = await openStore() // The store lacks these writes, as after a failover.
    report(false)
    report(true)
    await expect.poll(() => store.get(NAME)).toMatchObject({ ...LABELS, version: 2 })
    expect((await store.get(NAME))?.accessToken?.reveal()).toBe('access two')
  })

  it('the file of a rescued token pair contains the labels', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'rescue-'))
    cleanup.defer(() => rm(folder, { recursive: true }))
    const logger = { error: onError } as never
    const rescue = await openRescueFolder(folder, { keys: testKeys(), logger })
    const pair: KeptPair = {
      name: NAME,
      version: 1,
      grantId: 'grant one',
      isNewGrant: true,
      grant: { ...grantOf(NAME, 'one'), ...LABELS },
      dueAt: START,
      context: granted,
      isNoticeNew: false,
    }
    await rescue.save(pair)
    const [found] = await rescue.read()
    expect(found?.pair).toEqual(pair)
  })
})

describe('the labels of a credential after a change of the encryption key', () => {
  const entry = (id: string) => generateKeyRing().reveal().replace('k1', id)
  const ring = (...entries: string[]) => parseKeyRing(new Secret(entries.join(',')))
  const [old, fresh] = [entry('old'), entry('fresh')]

  it('labels are re-encrypted with the new key, so that the old key can be removed', async () => {
    const file = await openTestFile(ring(old))
    cleanup.defer(() => file.remove())
    await connect(file.store, LABELS)
    await file.store[Symbol.asyncDispose]()
    const both = await createFileCredentialStore(file.folder, ring(fresh, old))
    expect(await both.reseal(NAME)).toBe('resealed')
    expect(await both.reseal(NAME)).toBe('current')
    await both.retireKeys()
    await both[Symbol.asyncDispose]()
    const only = await createFileCredentialStore(file.folder, ring(fresh))
    cleanup.use(only)
    expect(await only.get(NAME)).toMatchObject(LABELS)
    expect(await only.checkDecryption(NAME)).toBe('decryptable')
  })

  it('labels are re-encrypted even if the secrets of the record are already encrypted with the new key', async () => {
    const file = await openTestFile(ring(old))
    cleanup.defer(() => file.remove())
    await connect(file.store, LABELS)
    await file.store[Symbol.asyncDispose]()
    const both = await createFileCredentialStore(file.folder, ring(fresh, old))
    cleanup.use(both)
    // A new token pair is encrypted with the new key, but the seal of the labels still has the old key.
    await both.put(grantOf(NAME, 'two'), START, granted)
    expect(await both.reseal(NAME)).toBe('resealed')
    expect(await both.get(NAME)).toMatchObject({ ...LABELS, version: 2 })
  })
})

/** Returns a credential store that forwards each call to the store that `current` returns. */
function following(current: () => CredentialStore): CredentialStore {
  const methods = Object.keys(current()) as (keyof CredentialStore)[]
  const calls = methods.map((method) => [
    method,
    (...args: never[]) => (current()[method] as (...given: never[]) => unknown)(...args),
  ])
  return Object.fromEntries(calls) as CredentialStore
}

const raise = (): never => {
  throw new Error('the document holds no credential')
}
