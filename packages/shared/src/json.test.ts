import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import {
  arrayElements,
  DOCUMENT_LIMITS,
  jsonExcess,
  OWN_TEXT,
  parseJson,
  parseJsonAs,
  parseJsonObject,
  parseMessageAs,
  SERVICE_LIMITS,
  trimmedJson,
} from './json.ts'

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

const LIMITS = { entries: 9, depth: 5, numberCharacters: 4 }

describe('JSON that exceeds a limit', () => {
  it.each([
    ['elements', `[${'1,'.repeat(8)}1]`],
    ['members', `{${Array.from({ length: 9 }, (_, n) => `"${n}":1`).join(',')}}`],
    ['objects', '{"a":1} '.repeat(9)],
    ['arrays', `[${'[],'.repeat(4)}[]]`],
  ])('text with too many %s is not parsed', (_, text) => {
    expect(jsonExcess(text, { ...LIMITS, entries: 8 })).toBe(
      'JSON may have at most 8 members and elements',
    )
    expect(jsonExcess(text, { ...LIMITS, entries: 10 })).toBeNull()
  })

  it.each([
    ['arrays', '[[[[[[]]]]]]', '[[[[[]]]]]'],
    ['objects', '{"a":{"a":[{"a":{"a":{}}}]}}', '{"a":{"a":[{"a":{}}]}}'],
  ])('text with too deeply nested %s is not parsed', (_, tooDeep, permitted) => {
    expect(jsonExcess(tooDeep, LIMITS)).toBe('JSON may be nested at most 5 levels deep')
    expect(jsonExcess(permitted, LIMITS)).toBeNull()
  })

  it.each(['12345', '-12345', '1.234', '1e345', '[0,12345]', '{"a":12345}'])(
    'text with a number that is too long is not parsed: %s',
    (text) => {
      const padded = text.padEnd(20)
      expect(jsonExcess(padded, LIMITS)).toBe('a number in JSON may have at most 4 characters')
      expect(jsonExcess(padded, { ...LIMITS, numberCharacters: 6 })).toBeNull()
    },
  )

  it.each([
    ['a string', `["${',{12345678'.repeat(100)}"]`],
    ['a string with escapes', String.raw`["\",,,,,,,,\\",",,,,\"{{{{{{{"]`],
    ['a string without end', `["${'{'.repeat(100)}`],
  ])('what %s contains is not counted', (_, text) => {
    expect(jsonExcess(text, LIMITS)).toBeNull()
  })

  it('parseJson and parseMessageAs return no value', () => {
    const text = `[${'0,'.repeat(25_000)}0]`
    expect(parseJson(text)).toBeUndefined()
    expect(parseMessageAs(z.unknown(), Buffer.from(text))).toBeUndefined()
    expect(parseMessageAs(z.array(z.number()), Buffer.from(text))).toBeNull()
    expect(parseJson(text, DOCUMENT_LIMITS)).toHaveLength(25_001)
    expect(parseJson(text, OWN_TEXT)).toHaveLength(25_001)
  })

  it('a message that is too large is not parsed', () => {
    const message = (bytes: number) => Buffer.from(`"${'a'.repeat(bytes - 2)}"`)
    expect(parseMessageAs(z.string(), message(4 * 1_048_576))).not.toBeNull()
    expect(parseMessageAs(z.string(), message(4 * 1_048_576 + 1))).toBeNull()
  })

  it('a text of any size is read once', () => {
    /** Returns the processor time in milliseconds. The elapsed time depends on what else runs on the machine. */
    const ms = (text: string): number => {
      const before = process.cpuUsage()
      for (let times = 0; times < 5; times += 1) jsonExcess(text, SERVICE_LIMITS)
      const { user, system } = process.cpuUsage(before)
      return (user + system) / 1_000
    }
    for (const fragment of ['0', '"', '\\', '[', ',', '{"a":', '"a\\"'])
      expect(ms(fragment.repeat(400_000)), fragment).toBeLessThan(1_000)
  })
})

describe('the elements of an array', () => {
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
    expect([...arrayElements(text)].map((element) => parseJson(element))).toContain(undefined)
  })
})

describe('the white space at the ends of a JSON text', () => {
  it.each([
    [' \t\r\n{ }\n\r\t ', '{ }'],
    [' \n', ''],
    ['', ''],
    ['\u00A01\u00A0', '\u00A01\u00A0'],
    ['\uFEFF1', '\uFEFF1'],
    ['\v1\f', '\v1\f'],
    ['\u20281', '\u20281'],
  ])('of %j is removed if JSON allows it there', (text, trimmed) => {
    expect(trimmedJson(text)).toBe(trimmed)
  })
})
