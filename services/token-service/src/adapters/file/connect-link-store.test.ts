import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  connectLinkStoreContract,
  linkOf,
} from '../../authorization/connect-link-store.contract.ts'
import { CONNECT_LINKS } from '../../authorization/connect-link-store.ts'
import { createFileConnectLinkStore, createMemoryConnectLinkStore } from './connect-link-store.ts'

let folder: string
beforeEach(async () => {
  folder = join(await mkdtemp(join(tmpdir(), 'connect-links-')), 'links')
})
afterEach(() => rm(join(folder, '..'), { recursive: true }))

connectLinkStoreContract('file', () => createFileConnectLinkStore(folder))

describe('many connect links in memory', () => {
  it('the memory store accepts no connect link above the limit until another link is deleted', async () => {
    let now = Date.now()
    const store = createMemoryConnectLinkStore(() => now)
    const short = linkOf({ expiresAt: now + 1_000 })
    await store.add(short, now)
    for (let count = 1; count < CONNECT_LINKS.total; count += 1)
      await store.add(linkOf({ expiresAt: now + 86_400_000 }), now)
    expect(await store.add(linkOf(), now)).toBe(false)
    now += 3_600_000
    expect(await store.add(linkOf({ expiresAt: now + 1_000 }), now)).toBe(true)
    expect(await store.get(short.id)).toBeNull()
  })
})

describe('connect links in files', () => {
  it('after a restart, a used connect link in a file cannot be used again, and a deleted link does not come back', async () => {
    const store = await createFileConnectLinkStore(folder)
    const [kept, used, deleted] = [linkOf(), linkOf(), linkOf()]
    for (const link of [kept, used, deleted]) await store.add(link, Date.now())
    await store.use(used, { usedAt: Date.now(), usedBy: 'a browser' })
    await store.remove(deleted)
    const reopened = await createFileConnectLinkStore(folder)
    expect(await reopened.get(kept.id)).toEqual(kept)
    expect(await reopened.use(used, { usedAt: Date.now(), usedBy: 'a browser' })).toBe(false)
    expect(await reopened.get(deleted.id)).toBeNull()
  })

  it('the connect link store writes files that only their owner can read, and deletes a file that contains no link', async () => {
    const store = await createFileConnectLinkStore(folder)
    const link = linkOf()
    await store.add(link, Date.now())
    const file = join(folder, `${link.id}.link.json`)
    expect((await stat(file)).mode & 0o777).toBe(0o600)
    expect(JSON.parse(await readFile(file, 'utf8'))).toEqual(link)
    await writeFile(join(folder, 'broken.link.json'), '{"id":')
    const reopened = await createFileConnectLinkStore(folder)
    expect(await reopened.list({ after: '', limit: 9 })).toEqual([link])
    expect(await readdir(folder)).toEqual([`${link.id}.link.json`])
  })
})
