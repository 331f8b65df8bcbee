import { randomBytes } from 'node:crypto'
import { beforeEach, describe, expect, it } from 'vitest'
import {
  CONNECT_LINKS,
  type ConnectLink,
  type ConnectLinkStore,
  positionOf,
} from './connect-link-store.ts'

const MINUTE_MS = 60_000

/** Returns a new link that expires in an hour. `members` override the default values. */
export const linkOf = (members: Partial<ConnectLink> = {}): ConnectLink => ({
  id: randomBytes(32).toString('base64url'),
  realm: '4620816365291',
  returnTo: 'http://localhost/done',
  label: 'Acme',
  tags: { region: 'EU' },
  createdAt: Date.now(),
  expiresAt: Date.now() + 60 * MINUTE_MS,
  createdBy: 'key test',
  keyId: null,
  usedAt: null,
  usedBy: null,
  ...members,
})

/** The contract that each adapter of `ConnectLinkStore` must pass. */
export function connectLinkStoreContract(
  kind: string,
  open: () => Promise<ConnectLinkStore>,
): void {
  describe(`${kind} as a store of connect links`, () => {
    let store: ConnectLinkStore
    beforeEach(async () => {
      store = await open()
    })

    it('the connect link store returns a link by its id, and null for an unknown id', async () => {
      const link = linkOf()
      expect(await store.add(link, Date.now())).toBe(true)
      expect(await store.get(link.id)).toEqual(link)
      expect(await store.get(linkOf().id)).toBeNull()
    })

    it('the connect link store lets only one of many concurrent callers use a link, and keeps the used link', async () => {
      const link = linkOf()
      await store.add(link, Date.now())
      const use = { usedAt: Date.now(), usedBy: 'the digest of a cookie' }
      const uses = await Promise.all(Array.from({ length: 10 }, () => store.use(link, use)))
      expect(uses.filter(Boolean)).toEqual([true])
      expect(await store.get(link.id)).toEqual({ ...link, ...use })
      expect(await store.use(linkOf(), use)).toBe(false)
    })

    it('the connect link store lists links page by page, in the order in which they will be deleted', async () => {
      const links = [4, 2, 5, 1, 3].map((hours) =>
        linkOf({ expiresAt: Date.now() + hours * 60 * MINUTE_MS }),
      )
      for (const link of links) await store.add(link, Date.now())
      const sorted = links.toSorted((one, other) => one.expiresAt - other.expiresAt)
      const first = await store.list({ after: '', limit: 2 })
      expect(first).toEqual(sorted.slice(0, 2))
      const last = first.at(-1)
      if (last === undefined) throw new Error('the first page is empty')
      expect(await store.list({ after: positionOf(last), limit: 9 })).toEqual(sorted.slice(2))
    })

    it('the connect link store deletes a link on request, and returns false for a second deletion', async () => {
      const link = linkOf()
      await store.add(link, Date.now())
      expect([await store.remove(link), await store.remove(link)]).toEqual([true, false])
      expect(await store.get(link.id)).toBeNull()
      expect(await store.list({ after: '', limit: 9 })).toEqual([])
    })

    it('the connect link store accepts no link of a key above its share, but one of another key, and again one after a deletion', async () => {
      const links = Array.from({ length: CONNECT_LINKS.perKey }, () => linkOf({ keyId: 'one' }))
      await Promise.all(links.map((link) => store.add(link, Date.now())))
      const next = linkOf({ keyId: 'one' })
      await expect(store.add(next, Date.now())).rejects.toMatchObject({
        code: 'quota_exceeded',
        retryAfterSeconds: 60,
      })
      expect(await store.get(next.id)).toBeNull()
      expect(await store.add(linkOf({ keyId: 'two' }), Date.now())).toBe(true)
      expect(await store.add(linkOf({ keyId: null }), Date.now())).toBe(true)
      const [first, second] = links as [ConnectLink, ConnectLink]
      await store.use(second, { usedAt: Date.now(), usedBy: 'the digest of a cookie' })
      await store.remove(first)
      expect(await store.add(next, Date.now())).toBe(true)
      await expect(store.add(linkOf({ keyId: 'one' }), Date.now())).rejects.toThrow('at most')
    })

    it('the connect link store deletes a link after its deletion time', async () => {
      const [expired, forgotten] = [5, 60].map((minutes) =>
        linkOf({ expiresAt: Date.now() - minutes * MINUTE_MS }),
      ) as [ConnectLink, ConnectLink]
      await store.add(expired, Date.now())
      await store.add(forgotten, Date.now())
      expect(await store.get(expired.id)).toEqual(expired)
      expect(await store.get(forgotten.id)).toBeNull()
      expect(await store.list({ after: '', limit: 9 })).toEqual([expired])
    })
  })
}
