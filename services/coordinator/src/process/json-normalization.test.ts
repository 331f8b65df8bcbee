import { describe, expect, it } from 'vitest'
import {
  isPreservedAsJson,
  parseClientJson,
  normalizedJson,
  normalizedText,
} from './json-normalization.ts'

describe('the normalization of JSON for a transaction source', () => {
  it('normalization replaces U+0000 and lone surrogates in text and JSON with U+FFFD', () => {
    expect(normalizedText('a\0b\ud83dc😀')).toBe('a\uFFFDb\uFFFDc😀')
    expect(normalizedJson({ 'k\0': ['\ud83d', '😀', '\\u0000', '\\\0'] })).toEqual({
      'k\uFFFD': ['\uFFFD', '😀', '\\u0000', '\\\uFFFD'],
    })
  })

  it('isPreservedAsJson() returns false for values that normalization would change', () => {
    for (const value of ['a\0', { 'b\0': 1 }, ['\udc00']])
      expect(isPreservedAsJson(value)).toBe(false)
    for (const value of ['😀', '\\u0000', null, { a: [1] }])
      expect(isPreservedAsJson(value)).toBe(true)
  })

  it.each([
    '9007199254740993',
    '-9007199254740993',
    '12345678901234567890',
    '3.14159265358979323846',
    '0.1000000000000000055',
    '1e400',
    '-1e400',
    '1e-400',
  ])(
    'isPreservedAsJson() returns false for the number %s, which a double cannot represent',
    (number) => {
      expect(isPreservedAsJson(parseClientJson(`{"a":[1,${number}]}`))).toBe(false)
    },
  )

  it.each([
    ['9007199254740991', 9_007_199_254_740_991],
    ['9007199254740992', 9_007_199_254_740_992],
    ['100000000000000000000000', 1e23],
    ['1.50e2', 150],
    ['-0.000000000000000000000', 0],
    ['0.30000000000000004', 0.1 + 0.2],
    ['5e-324', Number.MIN_VALUE],
    ['1.7976931348623157E+308', Number.MAX_VALUE],
    ['"12345678901234567890"', '12345678901234567890'],
  ])('parseClientJson() parses %s to a value that can be stored unchanged', (text, expected) => {
    const value = parseClientJson(`[${text}]`)
    expect(isPreservedAsJson(value)).toBe(true)
    expect(normalizedJson(value)).toEqual([expected])
  })

  it('normalization replaces undefined with null', () => {
    expect(normalizedJson(undefined)).toBeNull()
  })
})
