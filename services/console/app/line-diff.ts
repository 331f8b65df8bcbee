/**
 * Computes the difference of two texts, line by line: the smallest set of lines that must be removed and added (E. W.
 * Myers, "An O(ND) Difference Algorithm and Its Variations", 1986).
 */

export interface Line {
  /** The number of the line in its text, from 1. */
  readonly number: number
  readonly text: string
}

/** A row of the comparison. If `isEqual` is false, the left line was removed and the right one was added. */
export interface DiffRow {
  readonly left: Line | null
  readonly right: Line | null
  readonly isEqual: boolean
}

export interface LineDiff {
  readonly rows: readonly DiffRow[]
  readonly removed: number
  readonly added: number
}

/** A text with more lines than this is not compared. */
const MAX_LINES = 10_000
/**
 * Texts that need more changed lines than this are not compared, because time and memory grow with the square of this
 * number.
 */
const MAX_CHANGES = 1_000

/** Returns the difference of two texts; `null` if a text has too many lines, or if too many lines differ. */
export function lineDiff(left: string, right: string): LineDiff | null {
  const a = linesOf(left)
  const b = linesOf(right)
  if (Math.max(a.length, b.length) > MAX_LINES) return null
  let start = 0
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1
  let endA = a.length
  let endB = b.length
  while (endA > start && endB > start && a[endA - 1] === b[endB - 1]) {
    endA -= 1
    endB -= 1
  }
  const pairs = equalLines(a.slice(start, endA), b.slice(start, endB))
  if (pairs === null) return null
  const rows: DiffRow[] = []
  let x = 0
  let y = 0
  const lineOf = (lines: readonly string[], index: number, end: number): Line | null =>
    index < end ? { number: index + 1, text: lines[index] ?? '' } : null
  const equalUntil = (end: number): void => {
    for (; x < end; x += 1, y += 1)
      rows.push({ left: lineOf(a, x, end), right: lineOf(b, y, y + 1), isEqual: true })
  }
  /** Adds rows in which each removed line is beside a line that was added in the same place. */
  const changedUntil = (nextX: number, nextY: number): void => {
    for (; x < nextX || y < nextY; x = Math.min(x + 1, nextX), y = Math.min(y + 1, nextY))
      rows.push({ left: lineOf(a, x, nextX), right: lineOf(b, y, nextY), isEqual: false })
  }
  equalUntil(start)
  for (const [inA, inB] of pairs) {
    changedUntil(start + inA, start + inB)
    equalUntil(start + inA + 1)
  }
  changedUntil(endA, endB)
  equalUntil(a.length)
  return { rows, removed: endA - start - pairs.length, added: endB - start - pairs.length }
}

const linesOf = (text: string): readonly string[] => (text === '' ? [] : text.split('\n'))

/**
 * Returns the indexes of the lines that stay, as pairs; `null` if more than `MAX_CHANGES` lines must change.
 *
 * `reached[k]` is the furthest index in `a` that can be reached with `changes` changes on the diagonal `k` (the index
 * in `a` minus the index in `b`). `states` has a copy of `reached` for each number of changes, because `pathOf` follows
 * the path back from its end.
 */
function equalLines(
  a: readonly string[],
  b: readonly string[],
): readonly (readonly [number, number])[] | null {
  const most = Math.min(a.length + b.length, MAX_CHANGES)
  const reached = new Int32Array(2 * most + 3)
  const at = (k: number): number => k + most + 1
  const states: Int32Array[] = []
  for (let changes = 0; changes <= most; changes += 1) {
    states.push(reached.slice(at(-changes) - 1, at(changes) + 2))
    for (let k = -changes; k <= changes; k += 2) {
      let x = nextOf(reached, at(k), k, changes)
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x += 1
      reached[at(k)] = x
      if (x >= a.length && x - k >= b.length) return pathOf(states, a.length, b.length)
    }
  }
  return null
}

/**
 * Whether the last change that leads to the diagonal `k` was an added line, which comes from the diagonal `k + 1`. If
 * false, the change was a removed line, which comes from the diagonal `k - 1`.
 */
const isAdded = (reached: Int32Array, index: number, k: number, changes: number): boolean =>
  k === -changes || (k !== changes && (reached[index - 1] ?? 0) < (reached[index + 1] ?? 0))

const nextOf = (reached: Int32Array, index: number, k: number, changes: number): number =>
  isAdded(reached, index, k, changes) ? (reached[index + 1] ?? 0) : (reached[index - 1] ?? 0) + 1

function pathOf(
  states: readonly Int32Array[],
  lengthA: number,
  lengthB: number,
): readonly (readonly [number, number])[] {
  const pairs: (readonly [number, number])[] = []
  let x = lengthA
  let y = lengthB
  for (let changes = states.length - 1; changes >= 0; changes -= 1) {
    const state = states[changes] ?? new Int32Array()
    const k = x - y
    // The first element of `state` belongs to the diagonal `-changes - 1`.
    const index = k + changes + 1
    const fromX = changes === 0 ? 0 : nextOf(state, index, k, changes)
    for (; x > fromX; x -= 1, y -= 1) pairs.push([x - 1, y - 1])
    if (changes > 0 && isAdded(state, index, k, changes)) y -= 1
    else x -= changes > 0 ? 1 : 0
  }
  return pairs.toReversed()
}

/** Rows that are shown, or equal rows that are hidden. Only the number of hidden rows is shown. */
export type ShownRows =
  | { readonly rows: readonly DiffRow[] }
  | { readonly hidden: readonly DiffRow[] }

/**
 * Splits rows into those that are shown and those that are hidden. Of the equal rows, only `context` before and after
 * each change are shown.
 */
export function foldEqual(rows: readonly DiffRow[], context: number): readonly ShownRows[] {
  const isNear = rows.map(() => false)
  for (const [index, { isEqual }] of rows.entries())
    if (!isEqual)
      isNear.fill(true, Math.max(0, index - context), Math.min(rows.length, index + context + 1))
  const parts: ShownRows[] = []
  for (let from = 0; from < rows.length;) {
    let until = from + 1
    while (until < rows.length && isNear[until] === isNear[from]) until += 1
    const part = rows.slice(from, until)
    // A single line is shown, because the text that says how many lines are hidden would take as much space.
    parts.push(isNear[from] === true || part.length === 1 ? { rows: part } : { hidden: part })
    from = until
  }
  return parts
}
