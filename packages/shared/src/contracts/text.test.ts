import { describe, expect, it } from 'vitest'
import { CredentialEvent } from './credential.ts'
import { Label, LabelChange, labelMembersOf, Tags, hasOnlyVisible, isVisibleName } from './text.ts'

const accepts = (schema: { safeParse: (value: unknown) => { success: boolean } }, value: unknown) =>
  schema.safeParse(value).success

describe('the label of a credential', () => {
  it('a label has 1 to 100 characters, counted as code points', () => {
    expect(accepts(Label, 'A')).toBe(true)
    expect(accepts(Label, `a${'🏢'.repeat(99)}`)).toBe(true)
    expect(accepts(Label, 'a'.repeat(101))).toBe(false)
    expect(accepts(Label, `a${'🏢'.repeat(100)}`)).toBe(false)
    expect(accepts(Label, '')).toBe(false)
    expect(accepts(Label, ' \u00a0 ')).toBe(false)
  })

  it.each([
    ['a line break', 'Acme\nInc'],
    ['NUL', 'Acme\0'],
    ['a C1 control character', 'Acme\u0085'],
    ['a line separator', 'Acme\u2028Inc'],
    ['a paragraph separator', 'Acme\u2029Inc'],
    ['a right-to-left override', 'Acme\u202eInc'],
    ['a bidirectional isolate', '\u2067Acme\u2069'],
    ['an unpaired surrogate', 'Acme\ud83c'],
  ])('a label must not have %s', (_, text) => {
    expect(accepts(Label, text)).toBe(false)
    expect(accepts(Tags, { name: text })).toBe(false)
    expect(accepts(Tags, { [text]: 'value' })).toBe(false)
  })

  it('a tag named __proto__ is rejected, and other names of members of objects are kept', () => {
    const { error } = Tags.safeParse(JSON.parse('{"__proto__":"x","a":"b"}'))
    expect(error?.issues).toMatchObject([{ message: 'a tag must not be named __proto__' }])
    const names = '{"constructor":"1","toString":"2","hasOwnProperty":"3","prototype":"4"}'
    expect(JSON.stringify(Tags.parse(JSON.parse(names)))).toBe(names)
  })

  it('a label may contain markup, quotation marks and text in any writing system', () => {
    for (const text of ['<script>alert(1)</script>', `O'Neill & "Söhne"`, 'شركة', '会社'])
      expect(accepts(Label, text)).toBe(true)
  })
})

describe('the tags of a credential', () => {
  const tags = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, index) => [`tag-${index}`, 'x']))

  it('a credential has at most ten tags, each with a name of at most 64 characters and a value of at most 256 characters', () => {
    expect(accepts(Tags, tags(10))).toBe(true)
    expect(accepts(Tags, tags(11))).toBe(false)
    expect(accepts(Tags, { ['n'.repeat(64)]: 'v'.repeat(256), empty: '' })).toBe(true)
    expect(accepts(Tags, { ['n'.repeat(65)]: 'v' })).toBe(false)
    expect(accepts(Tags, { n: 'v'.repeat(257) })).toBe(false)
    expect(accepts(Tags, { n: 1 })).toBe(false)
  })

  it.each(['', ' ', 'a:b', 'a=b'])('a tag must not be named %j', (name) => {
    expect(accepts(Tags, { [name]: 'x' })).toBe(false)
  })
})

describe('the request to change the label and tags of a credential', () => {
  it('a change of labels keeps the stored value of an absent member, and removes a member that is null', () => {
    expect(LabelChange.parse({ Label: null })).toStrictEqual({ Label: null })
    expect(LabelChange.parse({ Tags: { a: 'b' } })).toStrictEqual({ Tags: { a: 'b' } })
  })

  it('a change of labels must name at least one member and no unknown member', () => {
    expect(accepts(LabelChange, {})).toBe(false)
    expect(accepts(LabelChange, { Label: 'A', label: 'B' })).toBe(false)
  })

  it('the view of a credential contains no member for an absent label and for an empty list of tags', () => {
    expect(labelMembersOf({ label: null, tags: {} })).toStrictEqual({})
    expect(labelMembersOf({ label: 'A', tags: { a: 'b' } })).toStrictEqual({
      Label: 'A',
      Tags: { a: 'b' },
    })
  })
})

describe('the schema of a credential event', () => {
  const event = {
    Name: 'ACC-1',
    Environment: '1',
    Expiry: '2026-01-01T00:00:00.000Z',
    Version: 1,
    At: '2026-01-01T00:00:00.000Z',
  }

  it('a credential event is valid with labels and without labels', () => {
    const labels = { Label: 'Acme', Tags: { a: 'b' } }
    expect(CredentialEvent.parse(event)).toStrictEqual(event)
    expect(CredentialEvent.parse({ ...event, ...labels })).toStrictEqual({ ...event, ...labels })
  })
})

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
