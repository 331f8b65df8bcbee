/** Tests the behaviour that every session store must have. */
import { beforeEach, describe, expect, it } from 'vitest'
import type { Session, SessionStore } from './stores.ts'

const HOUR = 3_600_000

export function describeSessionStore(
  name: string,
  open: () => Promise<AsyncDisposable & { readonly store: SessionStore }>,
): void {
  describe(`the session store ${name}`, () => {
    let count = 0
    let user = ''
    beforeEach(() => {
      user = `ada-${crypto.randomUUID()}@example.com`
    })
    const session = (change: Partial<Session> = {}): Session => {
      count += 1
      const now = Date.now()
      return {
        digest: crypto.randomUUID(),
        user,
        role: 'viewer',
        way: 'oidc',
        browser: 'Firefox on Linux',
        createdAt: now + count,
        usedAt: now,
        expiresAt: now + HOUR,
        ...change,
      }
    }

    it('the session store returns what was stored, and null for an unknown session', async () => {
      await using opened = await open()
      const { store } = opened
      const one = session()
      await store.put(one)
      expect(await store.get(one.digest)).toEqual(one)
      expect(await store.get('unknown')).toBeNull()
    })

    it('the session store changes the time of the last use, but does not restore a removed session', async () => {
      await using opened = await open()
      const { store } = opened
      const [one, other] = [session(), session()]
      await store.put(one)
      await store.put(other)
      await store.touch(one.digest, one.usedAt + 5)
      expect(await store.get(one.digest)).toEqual({ ...one, usedAt: one.usedAt + 5 })
      await store.remove(other.digest)
      await store.touch(other.digest, other.usedAt + 5)
      expect(await store.get(other.digest)).toBeNull()
    })

    it('the session store replaces a session but not its last use, and does not restore a removed session', async () => {
      await using opened = await open()
      const { store } = opened
      const [one, other] = [session(), session()]
      await store.put(one)
      await store.touch(one.digest, one.usedAt + 5)
      const changed = { ...one, role: 'operator', line: 'l', named: ['a'], checkedAt: 7 } as const
      await store.update(changed)
      expect(await store.get(one.digest)).toEqual({ ...changed, usedAt: one.usedAt + 5 })
      await store.update(other)
      expect(await store.get(other.digest)).toBeNull()
    })

    it('the session store lists the sessions of all persons', async () => {
      await using opened = await open()
      const { store } = opened
      const sessions = [session(), session({ user: `ben-${user}` }), session()]
      for (const one of sessions) await store.put(one)
      const byDigest = (one: Session, two: Session) => (one.digest < two.digest ? -1 : 1)
      expect((await store.all()).toSorted(byDigest)).toEqual(sessions.toSorted(byDigest))
    })

    it('the session store lists the sessions of a person, oldest first', async () => {
      await using opened = await open()
      const { store } = opened
      const sessions = [session(), session(), session()]
      for (const one of sessions.toReversed()) await store.put(one)
      await store.put(session({ user: 'ben' }))
      expect(await store.ofUser(user)).toEqual(sessions)
      await store.remove(sessions[1]?.digest ?? '')
      await store.remove('unknown')
      expect(await store.ofUser(user)).toEqual([sessions[0], sessions[2]])
    })
  })
}
