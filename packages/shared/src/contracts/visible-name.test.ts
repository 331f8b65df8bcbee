import { describe, expect, it } from 'vitest'
import { hasOnlyVisible, isVisibleName } from './visible-name.ts'

describe('a name that people read', () => {
  it.each(['Rosewood Interiors', 'Söhne & Co. №7', '4711', '株式会社', 'ACC-1', 'बिक्री', 'Ｋ'])(
    'can be %s',
    (name) => {
      expect(isVisibleName(name)).toBe(true)
    },
  )

  it.each([
    ['zero width space', '\u200b'],
    ['byte order mark', '\ufeff'],
    ['soft hyphen', '\u00ad'],
    ['Arabic letter mark', '\u061c'],
    ['right-to-left mark', '\u200f'],
    ['right-to-left override', '\u202e'],
    ['word joiner', '\u2060'],
    ['Hangul filler', '\u3164'],
    ['halfwidth Hangul filler', '\uffa0'],
    ['variation selector', '\ufe0f'],
    ['combining grapheme joiner', '\u034f'],
    ['Mongolian vowel separator', '\u180e'],
    ['tag letter', '\u{e0041}'],
    ['interlinear annotation anchor', '\ufff9'],
    ['line separator', '\u2028'],
    ['line feed', '\n'],
    ['unpaired surrogate', '\ud800'],
    ['private use character', '\ue000'],
  ])('has no %s', (_, character) => {
    for (const name of [character, `a${character}b`]) {
      expect(isVisibleName(name)).toBe(false)
      expect(hasOnlyVisible(name)).toBe(false)
    }
  })

  it.each(['', ' ', '\u00a0', '\u2003', '\u2800', '--', '. .', '\u0301'])(
    'has a letter or a digit, unlike %j',
    (name) => {
      expect(isVisibleName(name)).toBe(false)
    },
  )
})
