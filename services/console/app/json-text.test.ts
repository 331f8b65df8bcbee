import { describe, expect, it } from 'vitest'
import { foldedJson, jsonFault, type JsonPart, prettyJson } from './json-text.ts'

function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

describe('the function jsonFault()', () => {
  it.each([
    ['{"a": 1,}', 1, 9, 'a name in double quotes'],
    ['{"a": 1\n "b": 2}', 2, 2, 'a comma or }'],
    ['[1, 2', 1, 6, 'a comma or ]'],
    ['[1 2]', 1, 4, 'a comma or ]'],
    ['{a: 1}', 1, 2, 'a name in double quotes or }'],
    ['{"a" 1}', 1, 6, 'a colon'],
    ['{"a":\n\n  }', 3, 3, 'a value'],
    ['[}', 1, 2, 'a value or ]'],
    ['"a', 1, 3, 'a closing double quote'],
    ['"a\nb"', 1, 3, 'a closing double quote'],
    ['"a\\x"', 1, 3, 'an escape that JSON knows, such as \\n'],
    ['012', 1, 2, 'the end of the text'],
    ['{} {}', 1, 4, 'the end of the text'],
    ['hello', 1, 1, 'a value'],
    ['', 1, 1, 'a value'],
  ])(
    'jsonFault() reports the fault of the text %j: line %i, column %i needs %s',
    (text, line, column, expected) => {
      expect(jsonFault(text)).toEqual({ line, column, expected })
      expect(isJson(text)).toBe(false)
    },
  )

  it.each([
    '66',
    '-0.5e+3',
    'null',
    ' "x" ',
    String.raw`"\"\\\/\b\f\n\r\t\u00e9"`,
    '[]',
    '{}',
    '[[], {"a": [true, false, null]}, ""]',
    '[9007199254740993, 1e400]',
    `${'['.repeat(50_000)}${']'.repeat(50_000)}`,
  ])('jsonFault() finds no fault in the JSON text %.40s', (text) => {
    expect(jsonFault(text)).toBeNull()
  })

  it('jsonFault() agrees with JSON.parse about every text that differs from valid JSON in one character', () => {
    const valid = String.raw`{"a": [1.5e3, -0, "x\u00e9\n"], "b": {"c": true, "d": null}}`
    let faulty = 0
    for (let at = 0; at < valid.length; at += 1)
      for (const character of '{}[],:"\\ 0-e.tn\n\u0001') {
        const text = valid.slice(0, at) + character + valid.slice(at + 1)
        const isValid = isJson(text)
        expect(jsonFault(text) === null, JSON.stringify(text)).toBe(isValid)
        if (!isValid) faulty += 1
      }
    expect(faulty).toBeGreaterThan(300)
  })

  it('jsonFault() scans an unterminated string of 256 KB without delay', () => {
    const beginning = performance.now()
    expect(jsonFault(`"${String.raw`\n`.repeat(131_072)}`)?.expected).toBe('a closing double quote')
    expect(performance.now() - beginning).toBeLessThan(1_000)
  })
})

describe('the function prettyJson()', () => {
  it('prettyJson() indents a text as JSON.stringify does', () => {
    const value = { a: [], b: {}, c: [1, [2, { d: 'x, {y}: "z"' }]], e: { f: null } }
    expect(prettyJson(JSON.stringify(value))).toBe(JSON.stringify(value, null, 2))
  })

  it('prettyJson() keeps the digits of numbers, the escapes and the order of the members', () => {
    expect(prettyJson(String.raw`{"b":9007199254740993,"a":"\u00e9","b":1.50}`)).toBe(
      '{\n  "b": 9007199254740993,\n  "a": "\\u00e9",\n  "b": 1.50\n}',
    )
  })

  it('prettyJson() does not change a text that is not JSON', () => {
    expect(prettyJson('<html>{"a":1}')).toBe('<html>{"a":1}')
  })
})

const textOf = (part: JsonPart): string =>
  typeof part === 'string' ? part : [part.head, ...part.parts.map(textOf), part.tail].join('\n')

describe('the folding of JSON', () => {
  it('foldedJson() shows three levels of a JSON text, and folds the objects and arrays below the third level', () => {
    const text = JSON.stringify({ a: { b: { c: { d: [1, { e: 2 }] }, f: [] } }, g: 3 })
    expect(foldedJson(text)).toEqual([
      '{\n  "a": {\n    "b": {',
      {
        head: '      "c": {',
        parts: [
          {
            head: '        "d": [',
            parts: [
              '          1,',
              { head: '          {', parts: ['            "e": 2'], tail: '          }', count: 1 },
            ],
            tail: '        ]',
            count: 2,
          },
        ],
        tail: '      },',
        count: 1,
      },
      '      "f": []\n    }\n  },\n  "g": 3\n}',
    ])
  })

  it.each([
    ['numbers with many digits', '{"a":{"b":{"c":{"d":12345678901234567890.10}}}}'],
    ['a text that ends with a brace', '{"a":{"b":{"c":["{","[",{"x":"} {"}]}}}'],
    ['an escaped line break', String.raw`[[[["a\nb{"],{}]]]`],
    ['a value that is not a container', '"text"'],
    ['deep nesting', `${'['.repeat(60)}1${']'.repeat(60)}`],
  ])('the folded parts of a JSON text together are the whole text: %s', (_, text) => {
    expect(foldedJson(text)?.map(textOf).join('\n')).toBe(prettyJson(text))
  })

  it('a text that is not JSON is not folded', () => {
    expect(foldedJson('{"a":')).toBeNull()
    expect(foldedJson('<html>')).toBeNull()
  })
})
