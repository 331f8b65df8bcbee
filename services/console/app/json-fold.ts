/** Folds the inner levels of JSON, so that a person sees the outline of a large text first. */
import { jsonFault, prettyJson } from './json-text.ts'

/** An object or an array that can be folded: its first line, the lines in it, and its last line. */
export interface JsonFold {
  readonly head: string
  readonly parts: readonly JsonPart[]
  readonly tail: string
  /** The number of members of the object, or of elements of the array. */
  readonly count: number
}
/** A text of several lines, or a part that can be folded. */
export type JsonPart = string | JsonFold

/** Objects and arrays beyond this level are folded. The whole text is the first level. */
const SHOWN_LEVELS = 3
const INDENT = 2

/** Returns JSON with line breaks and folded inner levels; `null` if the text is not JSON. */
export function foldedJson(text: string): readonly JsonPart[] | null {
  if (jsonFault(text) !== null) return null
  const lines = prettyJson(text).split('\n')
  let at = 0
  /** Reads the lines of a container until its last line, which has the indentation `end`. */
  function partsUntil(end: number): {
    readonly parts: readonly JsonPart[]
    readonly count: number
  } {
    const parts: JsonPart[] = []
    let plain: string[] = []
    let count = 0
    for (; at < lines.length; at += 1) {
      const line = lines[at] ?? ''
      const indent = line.length - line.trimStart().length
      if (indent === end) break
      if (indent === end + INDENT && !/^[}\]]/.test(line.trimStart())) count += 1
      if (/[{[]$/.test(line) && indent >= SHOWN_LEVELS * INDENT) {
        if (plain.length > 0) parts.push(plain.join('\n'))
        plain = []
        at += 1
        const inner = partsUntil(indent)
        parts.push({ head: line, ...inner, tail: lines[at] ?? '' })
      } else plain.push(line)
    }
    if (plain.length > 0) parts.push(plain.join('\n'))
    return { parts, count }
  }
  return partsUntil(-INDENT).parts
}
