import { eventually } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { startSystem } from '../support/system.ts'
import { openBooks } from './support/books.ts'
import { addressOf, orders, queueBulk, startBeside } from './support/coordinators.ts'
import { scale } from './support/scale.ts'
import { startTarget } from './support/target.ts'

const ORDERS = scale({ test: 200, faults: 2_000 })
const ROUNDS = scale({ test: 1, faults: 3 })
const REPLICAS = 3

describe('three coordinators that are replaced one after the other, under load', () => {
  it('repeat no step, and leave within ten seconds', { timeout: 180_000 }, async ({ annotate }) => {
    await using target = await startTarget()
    target.latencyMs = 150
    await using system = await startSystem([])
    const env = { DEMO_API_URL: target.url, PREFETCH: '4' }
    let replicas = Array.from({ length: REPLICAS }, () => startBeside(system, env))
    const urls = await Promise.all(replicas.map(addressOf))
    await using books = await openBooks(system)
    await eventually(async () => expect(await books.consumers()).toBe(REPLICAS))
    const wanted = orders(ORDERS, 'r')
    await queueBulk(system, urls[0] ?? '', wanted)

    let slowestMs = 0
    let atWork = 0
    for (let turn = 0; turn < ROUNDS * REPLICAS; turn += 1) {
      const [oldest, ...others] = replicas
      const next = startBeside(system, env)
      replicas = [...others, next]
      await addressOf(next)
      if ((await books.count()).completed < ORDERS) atWork += 1
      const leavesAt = performance.now()
      expect(await oldest?.stop('SIGTERM')).toBe(0)
      slowestMs = Math.max(slowestMs, performance.now() - leavesAt)
    }
    expect(atWork).toBeGreaterThan(0)
    target.latencyMs = 0
    await eventually(
      async () => expect(await books.count()).toEqual({ headers: ORDERS, completed: ORDERS }),
      { seconds: 60 },
    )
    await eventually(async () => expect(await books.waiting()).toEqual({}))
    const ids = wanted.map(({ TransactionID }) => TransactionID)
    expect(await books.balance(ids, target)).toEqual({ inDoubt: 0, repeatedCalls: 0 })
    expect(slowestMs).toBeLessThan(10_000)
    await annotate(
      `rolling restart of ${REPLICAS} replicas, ${ROUNDS * REPLICAS} SIGTERMs (${atWork} under load), ${ORDERS} orders: 0 steps repeated, 0 attempts lost; the slowest left in ${(slowestMs / 1_000).toFixed(1)} s`,
      'figure',
    )
  })
})
