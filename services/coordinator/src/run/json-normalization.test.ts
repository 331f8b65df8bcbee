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

  // A check that took quadratic time would need minutes to hours for these texts.
  const MILLION = 1_000_000
  it.each([
    ['a number with a million zeros within', `1.${'0'.repeat(MILLION)}1`, false],
    ['a number with a million zeros at its end', `1.${'0'.repeat(MILLION)}`, false],
    ['a number with a million digits', '7'.repeat(MILLION), false],
    ['an exponent with a million digits', `1e${'0'.repeat(MILLION)}1`, false],
    ['a number of 400 characters', `1.${'0'.repeat(398)}`, true],
    ['a number of 401 characters', `1.${'0'.repeat(399)}`, false],
    ['a million backslashes', JSON.stringify('\\'.repeat(MILLION)), true],
    ['a million backslashes before U+0000', JSON.stringify(`${'\\'.repeat(MILLION)}\0`), false],
    ['a million backslashes before u0000', JSON.stringify(`${'\\'.repeat(MILLION)}u0000`), true],
  ])('checks within linear time whether JSON is preserved: %s', (_, text, isPreserved) => {
    const value = parseClientJson(`{"a":${text}}`)
    expect(value !== undefined && isPreservedAsJson(value)).toBe(isPreserved)
  })

  it('the longest notation of a double is preserved', () => {
    const number = 2.225073858507201e-308
    const notation = `0.${'0'.repeat(307)}2225073858507201`
    expect(parseClientJson(`[-${notation}]`)).toEqual([-number])
  })

  it('normalization replaces undefined with null', () => {
    expect(normalizedJson(undefined)).toBeNull()
  })
})
