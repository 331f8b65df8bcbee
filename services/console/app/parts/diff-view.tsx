import { useMemo, useState } from 'react'
import { counted } from '../../src/isomorphic/count-text.ts'
import { prettyJson } from '../json-text.ts'
import { type DiffRow, foldEqual, type Line, lineDiff } from '../line-diff.ts'
import { Outside } from './text.tsx'

/** The number of equal lines that are shown before and after a change. */
const CONTEXT = 3

export interface DiffViewProps {
  /** The name of the compared text, such as `Response of order`. */
  readonly name: string
  readonly left: DiffSide
  readonly right: DiffSide
}

export interface DiffSide {
  /** The name of this side of the comparison, such as `run 0`. */
  readonly name: string
  /** The text, which may be JSON; `null` if this side has no such text. */
  readonly text: string | null
  /** Whether `text` is only the beginning of a longer text. */
  readonly isCut?: boolean
}

/**
 * Shows two texts side by side. Each changed line has a sign, a word for screen readers and a
 * colour.
 */
export function DiffView({ name, left, right }: DiffViewProps) {
  const diff = useMemo(
    () => lineDiff(prettyJson(left.text ?? ''), prettyJson(right.text ?? '')),
    [left.text, right.text],
  )
  const isCut = left.isCut === true || right.isCut === true
  const isEqual = diff !== null && diff.removed + diff.added === 0 && left.text !== null
  return (
    <section className="diff" aria-label={name}>
      <h3>
        <Outside text={name} />
      </h3>
      {left.text === null && right.text === null ? null : (
        <p className="muted">
          {diff === null
            ? 'The texts are too long, or differ in too many lines, to be compared line by line.'
            : left.text === null
              ? `Only ${right.name} has it.`
              : right.text === null
                ? `Only ${left.name} has it.`
                : isEqual
                  ? 'Equal.'
                  : `${counted(diff.removed, 'line')} removed, ${counted(diff.added, 'line')} added.`}
          {isCut && ' Only the first 64 KB are compared.'}
        </p>
      )}
      {diff !== null && !isEqual && diff.rows.length > 0 && (
        <Rows rows={diff.rows} left={left.name} right={right.name} name={name} />
      )}
    </section>
  )
}

interface RowsProps {
  readonly rows: readonly DiffRow[]
  readonly name: string
  readonly left: string
  readonly right: string
}

function Rows({ rows, name, left, right }: RowsProps) {
  const [unfolded, setUnfolded] = useState<ReadonlySet<number>>(new Set())
  return (
    <table aria-label={`${name}, line by line`}>
      <thead>
        <tr>
          <th scope="col">{left}</th>
          <th scope="col">{right}</th>
        </tr>
      </thead>
      <tbody>
        {foldEqual(rows, CONTEXT).map((part, index) => {
          const shown = 'rows' in part ? part.rows : unfolded.has(index) ? part.hidden : null
          if (shown === null && 'hidden' in part)
            return (
              <tr key={`hidden ${part.hidden[0]?.left?.number}`} className="hidden">
                <td colSpan={2}>
                  <button
                    type="button"
                    className="plain"
                    onClick={() => setUnfolded(new Set([...unfolded, index]))}
                  >
                    Show {part.hidden.length} equal lines
                  </button>
                </td>
              </tr>
            )
          return shown?.map((row) => (
            <tr key={`${row.left?.number ?? ''} ${row.right?.number ?? ''}`}>
              <Cell line={row.left} change={row.isEqual ? null : 'removed'} />
              <Cell line={row.right} change={row.isEqual ? null : 'added'} />
            </tr>
          ))
        })}
      </tbody>
    </table>
  )
}

interface CellProps {
  readonly line: Line | null
  readonly change: 'removed' | 'added' | null
}

function Cell({ line, change }: CellProps) {
  if (line === null)
    return (
      <td className="absent">
        <span className="unseen">no line</span>
      </td>
    )
  return (
    <td className={change ?? 'equal'}>
      {change !== null && (
        <>
          <span className="sign" aria-hidden="true">
            {change === 'removed' ? '−' : '+'}
          </span>
          <span className="unseen">{change}: </span>
        </>
      )}
      <code>
        <Outside text={line.text} hasLines />
      </code>
    </td>
  )
}
