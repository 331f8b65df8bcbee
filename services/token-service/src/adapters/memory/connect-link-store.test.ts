import { describe, expect, it } from 'vitest'
import {
  connectLinkStoreContract,
  linkOf,
} from '../../authorization/connect-link-store.contract.ts'
import { CONNECT_LINKS } from '../../authorization/connect-link-store.ts'
import { createMemoryConnectLinkStore } from './connect-link-store.ts'

connectLinkStoreContract('memory', async () => createMemoryConnectLinkStore())

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
