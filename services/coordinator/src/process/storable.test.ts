import { describe, expect, it } from 'vitest'
import { isStorable, storableJson, storableText } from './storable.ts'

describe('what every source can keep', () => {
  it('has no NUL and no half of a surrogate pair', () => {
    expect(storableText('a\0b\ud83dc😀')).toBe('a\uFFFDb\uFFFDc😀')
    expect(storableJson({ 'k\0': ['\ud83d', '😀', '\\u0000', '\\\0'] })).toEqual({
      'k\uFFFD': ['\uFFFD', '😀', '\\u0000', '\\\uFFFD'],
    })
  })

  it('is told apart from what would be changed', () => {
    for (const value of ['a\0', { 'b\0': 1 }, ['\udc00']]) expect(isStorable(value)).toBe(false)
    for (const value of ['😀', '\\u0000', null, { a: [1] }]) expect(isStorable(value)).toBe(true)
  })

  it('takes what JSON has no form for as null', () => {
    expect(storableJson(undefined)).toBeNull()
  })
})
