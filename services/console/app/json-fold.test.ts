import { describe, expect, it } from 'vitest'
import { foldedJson, type JsonPart } from './json-fold.ts'
import { prettyJson } from './json-text.ts'

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
