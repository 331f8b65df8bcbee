import { Fragment, type ReactNode, useEffect, useMemo } from 'react'
import { type Block, type Inline, parseMarkdown, plainText } from '../markdown.ts'
import { useFragment } from '../router.ts'
import { Link } from './link.tsx'

/** The documents that the console contains, and their pages. */
const PAGES: Readonly<Record<string, string>> = {
  'runbook.md': '/help/runbook',
  'errors.md': '/help/errors',
}

export interface ManualProps {
  /** The name of the file in `docs/`. */
  readonly file: string
  readonly text: string
}

/** Shows a document of this repository, with a list of its sections. */
export function Manual({ file, text }: ManualProps) {
  const fragment = useFragment()
  const blocks = useMemo(() => parseMarkdown(text), [text])
  const headings = blocks.filter((block) => block.kind === 'heading' && block.level === 2)
  useEffect(() => {
    const heading = document.getElementById(fragment)
    if (fragment === '' || heading === null) return
    heading.scrollIntoView()
    heading.focus({ preventScroll: true })
  }, [fragment])
  return (
    <>
      <p className="crumbs">
        <Link to="/help">Help</Link>
      </p>
      <div className="manual">
        <article className="panel">
          {blocks.map((block, index) => (
            <BlockView key={index} block={block} file={file} />
          ))}
        </article>
        <nav aria-label="On this page">
          <ul>
            {headings.map(
              (block) =>
                block.kind === 'heading' && (
                  <li key={block.id}>
                    <a href={`#${block.id}`}>{plainText(block.inlines)}</a>
                  </li>
                ),
            )}
          </ul>
        </nav>
      </div>
    </>
  )
}

function BlockView({ block, file }: { readonly block: Block; readonly file: string }) {
  const content = (inlines: readonly Inline[]): ReactNode => (
    <Inlines inlines={inlines} file={file} />
  )
  switch (block.kind) {
    case 'heading': {
      if (block.level === 1) return <h1 tabIndex={-1}>{content(block.inlines)}</h1>
      const Heading = block.level === 2 ? 'h2' : block.level === 3 ? 'h3' : 'h4'
      return (
        <Heading id={block.id} tabIndex={-1}>
          {content(block.inlines)}
        </Heading>
      )
    }
    case 'paragraph':
      return <p>{content(block.inlines)}</p>
    case 'list': {
      const List = block.isOrdered ? 'ol' : 'ul'
      return (
        <List>
          {block.items.map((item, index) => (
            <li key={index}>{content(item)}</li>
          ))}
        </List>
      )
    }
    case 'code':
      return (
        <pre>
          <code>{block.text}</code>
        </pre>
      )
    case 'table':
      return (
        <table>
          <thead>
            <tr>
              {block.head.map((cell, index) => (
                <th key={index}>{content(cell)}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {block.rows.map((row, index) => (
              <tr key={index}>
                {row.map((cell, column) => (
                  <td key={column}>{content(cell)}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      )
  }
}

function Inlines({
  inlines,
  file,
}: {
  readonly inlines: readonly Inline[]
  readonly file: string
}) {
  return inlines.map((inline, index) => (
    <Fragment key={index}>
      <InlineView inline={inline} file={file} />
    </Fragment>
  ))
}

function InlineView({ inline, file }: { readonly inline: Inline; readonly file: string }) {
  switch (inline.kind) {
    case 'text':
      return inline.text
    case 'code':
      return <code>{inline.text}</code>
    case 'strong':
      return (
        <strong>
          <Inlines inlines={inline.inlines} file={file} />
        </strong>
      )
    case 'emphasis':
      return (
        <em>
          <Inlines inlines={inline.inlines} file={file} />
        </em>
      )
    case 'link': {
      const content = <Inlines inlines={inline.inlines} file={file} />
      const [target = '', anchor] = inline.target.split('#')
      const fragment = anchor === undefined ? '' : `#${anchor}`
      if (target.startsWith('https:'))
        return (
          <a href={inline.target} target="_blank" rel="noopener noreferrer">
            {content}
          </a>
        )
      const page = PAGES[target === '' ? file : target]
      if (page !== undefined) return <Link to={page + fragment}>{content}</Link>
      // The console contains only some of the documents. The repository and the package contain all documents.
      const place = `docs/${target}`
      return plainText(inline.inlines) === target ? (
        <code>{place}</code>
      ) : (
        <>
          {content} (<code>{place}</code>)
        </>
      )
    }
  }
}
