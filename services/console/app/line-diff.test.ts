import { describe, expect, it } from 'vitest'
import { type DiffRow, foldEqual, lineDiff } from './line-diff.ts'

const text = (...lines: readonly string[]): string => lines.join('\n')
/** Returns a row as `left|right`, or as the single line if both sides are equal. */
const rowText = ({ left, right, isEqual }: DiffRow): string =>
  isEqual ? (left?.text ?? '') : `${left?.text ?? ''}|${right?.text ?? ''}`
const rowsOf = (left: string, right: string) => lineDiff(left, right)?.rows.map(rowText)

describe('the function lineDiff()', () => {
  it('lineDiff() shows a changed line in one row, with the removed line on the left and the added line on the right', () => {
    expect(rowsOf(text('{', '  "a": 1', '}'), text('{', '  "a": 2', '}'))).toEqual([
      '{',
      '  "a": 1|  "a": 2',
      '}',
    ])
  })

  it('lineDiff() leaves the other side of an added or a removed line empty, and numbers the lines of each side separately', () => {
    const diff = lineDiff(text('a', 'b', 'c', 'd'), text('x', 'a', 'b', 'd'))
    expect(diff?.rows.map(rowText)).toEqual(['|x', 'a', 'b', 'c|', 'd'])
    expect(diff?.rows.at(-1)).toEqual({
      left: { number: 4, text: 'd' },
      right: { number: 4, text: 'd' },
      isEqual: true,
    })
    expect(diff).toMatchObject({ removed: 1, added: 1 })
  })

  it('lineDiff() finds no change in equal texts, and no line in an empty text', () => {
    expect(lineDiff('a\nb', 'a\nb')).toMatchObject({ removed: 0, added: 0 })
    expect(rowsOf('', 'a')).toEqual(['|a'])
    expect(lineDiff('', '')?.rows).toEqual([])
  })

  it('lineDiff() reports as few changed lines as possible, and its rows contain all lines of both texts', () => {
    let seed = 7
    const random = (below: number): number => {
      seed = (seed * 48_271) % 2_147_483_647
      return seed % below
    }
    for (let round = 0; round < 300; round += 1) {
      const [a = [], b = []] = [0, 1].map(() =>
        Array.from({ length: random(12) }, () => 'abc'.charAt(random(3))),
      )
      const diff = lineDiff(text(...a), text(...b))
      const side = (name: 'left' | 'right') => diff?.rows.flatMap((row) => row[name]?.text ?? [])
      expect(side('left')).toEqual(a)
      expect(side('right')).toEqual(b)
      const equal = diff?.rows.filter(({ isEqual }) => isEqual).length
      expect(equal, `${a.join('')} ${b.join('')}`).toBe(longestCommon(a, b))
      expect(diff?.removed).toBe(a.length - (equal ?? 0))
      expect(diff?.added).toBe(b.length - (equal ?? 0))
    }
  })

  it('lineDiff() returns null for texts with too many lines or too many changes', () => {
    const lines = (count: number, prefix: string) =>
      Array.from({ length: count }, (_, index) => `${prefix}${index}`).join('\n')
    expect(lineDiff(lines(10_001, ''), '')).toBeNull()
    expect(lineDiff(lines(1_500, 'a'), lines(1_500, 'b'))).toBeNull()
    expect(lineDiff(lines(10_000, ''), `${lines(9_999, '')}\nend`)).toMatchObject({ added: 1 })
  })
})

/** Returns the length of the longest common subsequence. */
function longestCommon(a: readonly string[], b: readonly string[]): number {
  const lengths = Array.from({ length: a.length + 1 }, () =>
    Array.from({ length: b.length + 1 }, () => 0),
  )
  const at = (i: number, j: number): number => lengths[i]?.[j] ?? 0
  for (const [i, line] of a.entries())
    for (const [j, other] of b.entries())
      (lengths[i + 1] ?? [])[j + 1] =
        line === other ? at(i, j) + 1 : Math.max(at(i, j + 1), at(i + 1, j))
  return at(a.length, b.length)
}

describe('the function foldEqual()', () => {
  it('foldEqual() shows the equal rows next to a change, and hides the equal rows that are farther away', () => {
    const before = Array.from({ length: 20 }, (_, index) => `line ${index}`)
    const diff = lineDiff(text(...before), text(...before.with(10, 'changed')))
    const parts = foldEqual(diff?.rows ?? [], 3).map((part) =>
      'rows' in part ? part.rows.length : -part.hidden.length,
    )
    expect(parts).toEqual([-7, 7, -6])
  })

  it('foldEqual() does not hide a single equal row', () => {
    const diff = lineDiff(text('a', 'b', 'c'), text('a', 'b', 'x'))
    expect(foldEqual(diff?.rows ?? [], 1).map((part) => 'rows' in part)).toEqual([true, true])
  })
})
