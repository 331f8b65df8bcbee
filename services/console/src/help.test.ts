import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { errorCodes } from '@integration-host/shared/errors'
import { describe, expect, it } from 'vitest'
import { type Block, type Inline, parseInlines, parseMarkdown, plainText } from '../app/markdown.ts'
import { conditionNames } from './contracts/now.ts'
const ROOT = join(import.meta.dirname, '../../..')
const blocksOf = (file: string): readonly Block[] =>
  parseMarkdown(readFileSync(join(ROOT, file), 'utf8'))
const anchorsOf = (file: string): ReadonlySet<string> =>
  new Set(blocksOf(file).flatMap((block) => (block.kind === 'heading' ? [block.id] : [])))
/** The commands that the runbook names, also without the name of the program. */
const COMMAND =
  /^(?:npx --no -- )?(?:integration-host |credentials |transactions |dead-letters |processes )/
const text = (value: string) => ({ kind: 'text', text: value })

describe('the help pages of the console', () => {
  it('the Markdown parser reads headings, paragraphs, lists, code and tables', () => {
    const blocks = parseMarkdown(
      '# Title `x`\none\ntwo\n- first\n  goes on\n- second\n\n1. third\n\n```sh\na | b\n```\n| H |\n| --- |\n| a \\| b |\n<!-- no -->\n',
    )
    expect(blocks).toEqual([
      {
        kind: 'heading',
        level: 1,
        id: 'title-x',
        inlines: [text('Title '), { kind: 'code', text: 'x' }],
      },
      { kind: 'paragraph', inlines: [text('one two')] },
      {
        kind: 'list',
        isOrdered: false,
        items: [[text('first goes on')], [text('second')]],
      },
      { kind: 'list', isOrdered: true, items: [[text('third')]] },
      { kind: 'code', text: 'a | b' },
      { kind: 'table', head: [[text('H')]], rows: [[[text('a | b')]]] },
    ])
  })

  it('the Markdown parser reads nested links, code and emphasis, and keeps HTML markup as text', () => {
    expect(parseInlines('**a [`b`](c.md#d)** *e* <img src=x>')).toEqual([
      {
        kind: 'strong',
        inlines: [
          text('a '),
          { kind: 'link', target: 'c.md#d', inlines: [{ kind: 'code', text: 'b' }] },
        ],
      },
      text(' '),
      { kind: 'emphasis', inlines: [text('e')] },
      text(' <img src=x>'),
    ])
  })

  it.each(['docs/runbook.md', 'docs/errors.md'])(
    'the parsed text of %s contains no Markdown markup',
    (file) => {
      const texts = (block: Block): readonly string[] => {
        switch (block.kind) {
          case 'code':
            return []
          case 'list':
            return block.items.map(withoutCode)
          case 'table':
            return [block.head, ...block.rows].flat().map(withoutCode)
          case 'heading':
          case 'paragraph':
            return [withoutCode(block.inlines)]
        }
      }
      const withoutCode = (inlines: readonly Parameters<typeof plainText>[0][number][]): string =>
        plainText(inlines.filter(({ kind }) => kind !== 'code'))
      const marked = blocksOf(file)
        .flatMap(texts)
        .filter((value) => /\*\*|\]\(|^#|`|<!--/.test(value))
      expect(marked).toEqual([])
    },
  )

  it('every link within docs/runbook.md and within docs/errors.md leads to an existing anchor', () => {
    const anchors = new Map(
      ['runbook.md', 'errors.md'].map((file) => [file, anchorsOf(`docs/${file}`)]),
    )
    for (const file of anchors.keys()) {
      const source = readFileSync(join(ROOT, 'docs', file), 'utf8')
      for (const [, name, anchor = ''] of source.matchAll(
        /\]\((runbook\.md|errors\.md)?#([^)]+)\)/g,
      ))
        expect(anchors.get(name ?? file), `${file}: #${anchor}`).toContain(anchor)
    }
  })

  it.each(conditionNames)(
    'the help page with the runbook has a section on the condition %s',
    (name) => {
      expect(anchorsOf('docs/runbook.md')).toContain(name.toLowerCase())
    },
  )

  it.each([
    'credentialsfaulted',
    'tokennearexpiry',
    'refreshesfailing',
    'grantsexpiring',
    'a-credential-is-faulted',
    'runsfailed',
    'runsindoubt',
    'runswaiting',
    'deadmessages',
    'processpaused',
  ])(
    'the section %s of the runbook says what to do in the console before it names a command',
    (id) => {
      const blocks = blocksOf('docs/runbook.md')
      const begin = blocks.findIndex((block) => block.kind === 'heading' && block.id === id)
      const length = blocks.slice(begin + 1).findIndex(({ kind }) => kind === 'heading')
      const section = blocks
        .slice(begin + 1, begin + 1 + length)
        .flatMap((block) =>
          block.kind === 'list' ? block.items : block.kind === 'paragraph' ? [block.inlines] : [],
        )
        .flat()
      const isCommand = ({ kind, ...inline }: Inline): boolean =>
        kind === 'code' && 'text' in inline && COMMAND.test(inline.text)
      const page = section.findIndex(({ kind }) => kind === 'emphasis')
      const command = section.findIndex(isCommand)
      expect(page).toBeGreaterThanOrEqual(0)
      expect(command === -1 || page < command).toBe(true)
    },
  )

  it('the help page on errors has a section for every code to which a problem of the console links', () => {
    expect([...anchorsOf('docs/errors.md')]).toEqual(
      expect.arrayContaining(Object.keys(errorCodes)),
    )
  })
})
