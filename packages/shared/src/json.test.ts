import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { arrayElements, parseJson, parseJsonAs, parseJsonObject, tooManyEntries } from './json.ts'

describe('parsing JSON from another process', () => {
  it('parseJson returns the value, or undefined if the text is not JSON', () => {
    expect(parseJson('{"a":1}')).toEqual({ a: 1 })
    expect(parseJson('null')).toBeNull()
    expect(parseJson('{')).toBeUndefined()
    expect(parseJson('')).toBeUndefined()
  })

  it('parseJsonAs returns null if the text is not JSON or does not match the schema', () => {
    const Code = z.object({ code: z.string() })
    expect(parseJsonAs(Code, '{"code":"x","more":1}')).toEqual({ code: 'x' })
    expect(parseJsonAs(Code, '{"code":1}')).toBeNull()
    expect(parseJsonAs(Code, '<html>')).toBeNull()
  })

  it.each(['[]', '"text"', 'null', '1', '<html>'])(
    'parseJsonObject returns null for %s',
    (text) => {
      expect(parseJsonObject(text)).toBeNull()
    },
  )
})

describe('JSON with many members and elements', () => {
  it.each([
    ['elements', `[${'1,'.repeat(10)}1]`],
    ['members', `{${Array.from({ length: 11 }, (_, n) => `"${n}":1`).join(',')}}`],
    ['objects', '{"a":'.repeat(11) + '1' + '}'.repeat(11)],
    ['empty arrays', `[${'[],'.repeat(11)}[]]`],
  ])('text with too many %s is rejected before it is parsed', (_, text) => {
    expect(tooManyEntries(text, 9)).toBe('JSON may have at most 9 members and elements')
    expect(tooManyEntries(text, 12)).toBeNull()
  })

  it('ten times as many nested arrays are permitted', () => {
    expect(tooManyEntries('['.repeat(100), 10)).toBeNull()
    expect(tooManyEntries('['.repeat(101), 10)).not.toBeNull()
  })

  it.each([
    ['a string', `["${',{'.repeat(100)}"]`],
    ['a string with escapes', String.raw`["\",,,,,,,,\\",",,,\"{{{{{{{"]`],
  ])('what %s contains is not counted', (_, text) => {
    expect(tooManyEntries(text, 3)).toBeNull()
  })

  it.each([
    ['[]', []],
    [' [ ] ', []],
    ['[1, {"a":[2,3]} ,"],[\\"]"]', ['1', ' {"a":[2,3]} ', '"],[\\"]"']],
    ['[[1],[]]', ['[1]', '[]']],
  ])('the array %s is split into the texts of its elements', (text, elements) => {
    expect([...arrayElements(text)]).toEqual(elements)
  })

  it.each([
    '',
    '1',
    '{}',
    '[',
    '[1',
    '[1}',
    '[1]]',
    '[1],',
    '[1,]',
    '[,1]',
    '[1,,2]',
    '["1]',
    '\u00A0[]',
  ])('the text %j has an element that is not JSON, because it is not an array', (text) => {
    expect([...arrayElements(text)].map(parseJson)).toContain(undefined)
  })
})
