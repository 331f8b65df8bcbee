import { useMemo, useState } from 'react'
import { foldedJson, type JsonFold, type JsonPart } from '../json-text.ts'
import { Outside } from './elements.tsx'

/** Shows a text. JSON is shown with line breaks, and its inner levels are folded until a person unfolds them. */
export function JsonView({ text }: { readonly text: string }) {
  const parts = useMemo(() => foldedJson(text), [text])
  const [areAllOpen, setAllOpen] = useState(false)
  if (parts === null || parts.every((part) => typeof part === 'string'))
    return (
      <pre>
        <Outside text={parts?.join('\n') ?? text} hasLines />
      </pre>
    )
  return (
    <>
      <div className="json">
        <Parts key={String(areAllOpen)} parts={parts} areOpen={areAllOpen} />
      </div>
      <p className="buttons after">
        <button type="button" onClick={() => setAllOpen(!areAllOpen)}>
          {areAllOpen ? 'Fold the inner levels' : 'Unfold all levels'}
        </button>
      </p>
    </>
  )
}

interface PartsProps {
  readonly parts: readonly JsonPart[]
  readonly areOpen: boolean
}

function Parts({ parts, areOpen }: PartsProps) {
  return parts.map((part, index) =>
    typeof part === 'string' ? (
      <div key={index}>
        <Outside text={part} hasLines />
      </div>
    ) : (
      <Fold key={index} fold={part} areOpen={areOpen} />
    ),
  )
}

/**
 * A part of the JSON that is folded at first. Its lines are in the page only while the part is unfolded, so that a
 * large text stays fast.
 */
function Fold({ fold, areOpen }: { readonly fold: JsonFold; readonly areOpen: boolean }) {
  const [isOpen, setOpen] = useState(areOpen)
  const { head, parts, tail, count } = fold
  return (
    <details open={isOpen} onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>
        <Outside text={head} hasLines />
        {!isOpen && (
          <span className="muted">
            {' '}
            {count} {count === 1 ? 'member' : 'members'} <Outside text={tail.trim()} />
          </span>
        )}
      </summary>
      {isOpen && (
        <>
          <Parts parts={parts} areOpen={areOpen} />
          <Outside text={tail} hasLines />
        </>
      )}
    </details>
  )
}
