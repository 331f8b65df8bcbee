/**
 * Parses the Markdown of this repository's documents into blocks, which the pages show as elements. Text of a document
 * never becomes HTML. The parser supports what these documents use: headings, paragraphs, lists, tables, code, links
 * and emphasis.
 */

export type Inline =
  | { readonly kind: 'text' | 'code'; readonly text: string }
  | { readonly kind: 'strong' | 'emphasis'; readonly inlines: readonly Inline[] }
  | { readonly kind: 'link'; readonly target: string; readonly inlines: readonly Inline[] }

export type Block =
  | {
      readonly kind: 'heading'
      readonly level: number
      /** The anchor of the heading in the form that GitHub uses. */
      readonly id: string
      readonly inlines: readonly Inline[]
    }
  | { readonly kind: 'paragraph'; readonly inlines: readonly Inline[] }
  | {
      readonly kind: 'list'
      readonly isOrdered: boolean
      readonly items: readonly (readonly Inline[])[]
    }
  | { readonly kind: 'code'; readonly text: string }
  | {
      readonly kind: 'table'
      readonly head: readonly (readonly Inline[])[]
      readonly rows: readonly (readonly (readonly Inline[])[])[]
    }

const HEADING = /^(#{1,6}) (.+)$/
const ITEM = /^(-|\d+\.) (.*)$/
const FENCE = '```'

/** A comment without an end stays. */
const withoutComments = (text: string): string =>
  text
    .split('<!--')
    .map((part, index) => {
      const end = part.indexOf('-->')
      if (index === 0) return part
      return end === -1 ? `<!--${part}` : part.slice(end + 3)
    })
    .join('')

/** Returns the blocks of a document. Comments are left out. */
export function parseMarkdown(text: string): readonly Block[] {
  const lines = withoutComments(text).split('\n')
  const blocks: Block[] = []
  const ids = new Map<string, number>()
  /** The lines of the current paragraph, or of the items of the current list. */
  let open: { readonly marker: string | null; readonly items: string[] } | null = null

  function close(): void {
    if (open === null) return
    const { marker, items } = open
    blocks.push(
      marker === null
        ? { kind: 'paragraph', inlines: parseInlines(items.join(' ')) }
        : { kind: 'list', isOrdered: marker !== '-', items: items.map(parseInlines) },
    )
    open = null
  }
  function idOf(heading: string): string {
    const slug = slugOf(heading)
    const count = ids.get(slug) ?? 0
    ids.set(slug, count + 1)
    return count === 0 ? slug : `${slug}-${count}`
  }

  for (let index = 0; index < lines.length; index += 1) {
    const line = lines[index] ?? ''
    const heading = HEADING.exec(line)
    const item = ITEM.exec(line)
    if (line.trim() === '') close()
    else if (heading !== null) {
      close()
      const [, marks = '', content = ''] = heading
      const inlines = parseInlines(content)
      blocks.push({ kind: 'heading', level: marks.length, id: idOf(plainText(inlines)), inlines })
    } else if (line.startsWith(FENCE)) {
      close()
      const end = lines.findIndex((other, at) => at > index && other.startsWith(FENCE))
      const last = end === -1 ? lines.length : end
      blocks.push({ kind: 'code', text: lines.slice(index + 1, last).join('\n') })
      index = last
    } else if (line.startsWith('|')) {
      close()
      const end = lines.findIndex((other, at) => at > index && !other.startsWith('|'))
      const last = end === -1 ? lines.length : end
      const [head = [], , ...rows] = lines.slice(index, last).map(cellsOf)
      blocks.push({ kind: 'table', head, rows })
      index = last - 1
    } else if (item !== null) {
      const [, marker = '', content = ''] = item
      if (open?.marker === null) close()
      open ??= { marker, items: [] }
      open.items.push(content)
    } else if (open === null) open = { marker: null, items: [line.trim()] }
    else if (open.marker === null) open.items.push(line.trim())
    else open.items.push(`${open.items.pop() ?? ''} ${line.trim()}`)
  }
  close()
  return blocks
}

/** Returns the anchor that GitHub gives a heading. */
const slugOf = (heading: string): string =>
  heading
    .trim()
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
    .replaceAll(/\s/g, '-')

/** Returns the cells of a row. A pipe after a backslash is part of its cell. */
const cellsOf = (line: string): (readonly Inline[])[] =>
  line
    .trim()
    .replace(/^\|/, '')
    .replace(/\|$/, '')
    .split(/(?<!\\)\|/)
    .map((cell) => parseInlines(cell.replaceAll(String.raw`\|`, '|').trim()))

const INLINE =
  /`([^`]+)`|\[((?:[^\][]|\[[^\][]*\])+)\]\(([^)\s]+)\)|\*\*(.+?)\*\*|\*([^*\s][^*]*)\*/g

export function parseInlines(text: string): readonly Inline[] {
  const inlines: Inline[] = []
  let after = 0
  for (const found of text.matchAll(INLINE)) {
    const [whole, code, label, target, strong, emphasis] = found
    if (found.index > after) inlines.push({ kind: 'text', text: text.slice(after, found.index) })
    after = found.index + whole.length
    if (code !== undefined) inlines.push({ kind: 'code', text: code })
    else if (label !== undefined && target !== undefined)
      inlines.push({ kind: 'link', target, inlines: parseInlines(label) })
    else if (strong !== undefined) inlines.push({ kind: 'strong', inlines: parseInlines(strong) })
    else if (emphasis !== undefined)
      inlines.push({ kind: 'emphasis', inlines: parseInlines(emphasis) })
  }
  if (after < text.length) inlines.push({ kind: 'text', text: text.slice(after) })
  return inlines
}

/** Returns the text of inline elements without their markup. */
export const plainText = (inlines: readonly Inline[]): string =>
  inlines.map((inline) => ('text' in inline ? inline.text : plainText(inline.inlines))).join('')
