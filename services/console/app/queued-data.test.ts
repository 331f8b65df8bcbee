import { describe, expect, it } from 'vitest'
import { copyId, typedData } from './queued-data.ts'

describe('the function typedData()', () => {
  it('the initial data of a transaction is sent exactly as a person typed the JSON, with every digit of its numbers', () => {
    const text = '{ "a": 9007199254740993 }'
    expect(typedData(text, '66', false)).toEqual({
      json: text,
      fault: null,
      bytes: 25,
      isTooLong: false,
    })
  })

  it('initial data that is not JSON is sent only if the person chooses to send the text as a JSON string', () => {
    const fault = { line: 1, column: 1, expected: 'a value' }
    expect(typedData('say "hi"', '66', false)).toMatchObject({ json: null, fault })
    expect(typedData('say "hi"', '66', true)).toMatchObject({
      json: String.raw`"say \"hi\""`,
      fault,
    })
  })

  it('if the field for the initial data is empty, the data is the id of the transaction as a JSON string', () => {
    expect(typedData(' \n', 'a"b', false)).toMatchObject({ json: String.raw`"a\"b"`, fault: null })
  })

  it('the size of the initial data is counted in bytes, and data of more than 256 KB is too long', () => {
    const text = JSON.stringify('é'.repeat(131_071))
    expect(typedData(text, '66', false)).toMatchObject({ bytes: 262_144, isTooLong: false })
    expect(typedData(`${text} `, '66', false)).toMatchObject({ bytes: 262_145, isTooLong: true })
  })
})

describe('the function copyId()', () => {
  it('copyId() appends -copy to an id, returns at most 128 characters, and splits no surrogate pair', () => {
    expect(copyId('66')).toBe('66-copy')
    const long = copyId('😀'.repeat(64))
    expect(long.length).toBeLessThanOrEqual(128)
    expect(long.isWellFormed()).toBe(true)
    expect(long.endsWith('😀-copy')).toBe(true)
  })
})
