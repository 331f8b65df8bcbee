import { describe, expect, it } from 'vitest'
import { redisStoresPerTest } from '../../../test-support/redis-stores.ts'
import {
  connectLinkStoreContract,
  linkOf,
} from '../../authorization/connect-link-store.contract.ts'
import { CONNECT_LINKS } from '../../authorization/connect-link-store.ts'

const { openUsable } = redisStoresPerTest()

connectLinkStoreContract('Redis', async () => (await openUsable()).links)

describe('many connect links in Redis', () => {
  it('the Redis store accepts no connect link above the limit, and removes expired links from the index when a link is added', async () => {
    const { redis, links } = await openUsable()
    const now = Date.now()
    const fill = redis.pipeline()
    for (let count = 0; count < CONNECT_LINKS.total; count += 1)
      fill.zadd(
        'authorization:links',
        0,
        `${String(now + 1_000 + count).padStart(15, '0')}:${count}`,
      )
    await fill.exec()
    expect(await links.add(linkOf(), now)).toBe(false)
    expect(await links.add(linkOf(), now + 1_002)).toBe(true)
    expect(await redis.zcard('authorization:links')).toBe(CONNECT_LINKS.total - 1)
  })

  it('a connect link in Redis expires, and its entry in the index has the same deletion time', async () => {
    const { redis, links } = await openUsable()
    const link = linkOf()
    await links.add(link, Date.now())
    const key = `authorization:link:${link.id}`
    const [position] = await redis.zrangebylex('authorization:links', '-', '+')
    expect(Number(position?.split(':')[0])).toBe(await redis.pexpiretime(key))
    await links.use(link, { usedAt: Date.now(), usedBy: 'a browser' })
    expect(await redis.zcard('authorization:links')).toBe(1)
    expect(await redis.pttl(key)).toBeGreaterThan(0)
  })
})
