import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { parseJson, parseJsonAs, parseJsonObject } from './json.ts'

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
