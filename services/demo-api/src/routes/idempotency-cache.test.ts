import { describe, expect, it } from 'vitest'
import { createIdempotencyCache } from './order-and-report.ts'

describe('the idempotency cache', () => {
  it('the idempotency cache evicts its oldest key when it is full', () => {
    const cache = createIdempotencyCache(2)
    let made = 0
    const respond = (key: string) => cache.respond(key, 'request', () => ++made).response
    expect([respond('a'), respond('b'), respond('c')]).toEqual([1, 2, 3])
    expect([respond('c'), respond('b')]).toEqual([3, 2])
    expect(respond('a')).toBe(4)
    expect(respond('c')).toBe(3)
    expect(respond('b')).toBe(5)
  })

  it('the idempotency cache stores no response for a call without an idempotency key', () => {
    const cache = createIdempotencyCache(2)
    let made = 0
    const call = () => cache.respond(undefined, 'request', () => ++made)
    expect([call().response, call().response]).toEqual([1, 2])
    expect(call().isRepeated).toBe(false)
  })
})
