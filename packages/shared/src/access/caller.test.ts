import { describe, expect, it } from 'vitest'
import { Places } from './caller.ts'

describe('places that keys share', () => {
  it('gives one key at most its share, so that another key still gets a place', () => {
    const places = new Places({ total: 4, perKey: 2 })
    const one = { shareOf: 'one' }
    expect([places.take(one), places.take(one)]).not.toContain(null)
    expect(places.take(one)).toBeNull()
    expect(places.take({ shareOf: 'other' })).not.toBeNull()
    expect(places.size).toBe(3)
  })

  it('gives no more places than there are in all, also to a key without a share', () => {
    const places = new Places({ total: 3, perKey: 2 })
    const service = { shareOf: null }
    for (let n = 0; n < 3; n += 1) expect(places.take(service)).not.toBeNull()
    expect(places.take(service)).toBeNull()
    expect(places.take({ shareOf: 'one' })).toBeNull()
  })

  it('frees a place once, however often its function is called', () => {
    const places = new Places({ total: 2, perKey: 1 })
    const free = places.take({ shareOf: 'one' })
    expect(places.take({ shareOf: 'two' })).not.toBeNull()
    free?.()
    free?.()
    expect(places.size).toBe(1)
    expect(places.take({ shareOf: 'one' })).not.toBeNull()
    expect(places.take({ shareOf: 'one' })).toBeNull()
  })
})
