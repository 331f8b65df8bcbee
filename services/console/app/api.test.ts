import { describe, expect, it } from 'vitest'
import { hasEnded, Problem } from './api.ts'

describe('a request whose repetition would be executed a second time', () => {
  it.each([
    ['was executed', null],
    ['was rejected', new Problem(409, 'transaction_active', '')],
    ['has an unknown outcome', new Problem(504, 'outcome_unknown', '')],
  ])('a request that %s has ended', (_, error) => expect(hasEnded(error)).toBe(true))

  it.each([
    ['got no response', new Problem(0, 'unreachable', '')],
    ['got a response of a load balancer', new Problem(502, 'unknown', '')],
    ['was closed by Node before it was complete', new Problem(408, 'unknown', '')],
    ['was repeated while Redis was unavailable', new Problem(503, 'store_unavailable', '')],
    ['got an incomplete response', new SyntaxError('Unexpected end of JSON input')],
  ])('a request that %s has not ended', (_, error) => expect(hasEnded(error)).toBe(false))
})
