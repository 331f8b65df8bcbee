import { describe, expect, it } from 'vitest'
import { verdictOf } from './retry-policy.ts'

describe('the classification of an HTTP status for a step', () => {
  it.each([
    [200, 'completed'],
    [201, 'completed'],
    [204, 'completed'],
    [299, 'completed'],
    [301, 'failed'],
    [304, 'failed'],
    [400, 'failed'],
    [401, 'failed'],
    [404, 'failed'],
    [408, 'retry'],
    [409, 'failed'],
    [422, 'failed'],
    [424, 'failed'],
    [425, 'retry'],
    [429, 'retry'],
    [500, 'retry'],
    [501, 'retry'],
    [503, 'retry'],
    [599, 'retry'],
  ])('a response with status %i gives its step the verdict %s', (status, verdict) =>
    expect(verdictOf(status)).toBe(verdict),
  )
})
