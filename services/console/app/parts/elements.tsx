/** The elements that the pages consist of. */
import type { UseInfiniteQueryResult } from '@tanstack/react-query'
import { Children, Fragment, type ReactNode, useId } from 'react'
import { visible, visibleLines } from '../visible.ts'

export interface OutsideProps {
  readonly text: string
  /** Whether the text may have several lines. */
  readonly hasLines?: boolean
}

/**
 * Shows text that comes from outside. Such text cannot change the direction of the surrounding text. Characters that
 * cannot be seen are shown as their code points, so that one id cannot look like another.
 */
export function Outside({ text, hasLines = false }: OutsideProps) {
  return <bdi>{hasLines ? visibleLines(text) : visible(text)}</bdi>
}

export interface PanelProps {
  readonly title: ReactNode
  /** The fragment of this part of the page. */
  readonly id?: string
  readonly className?: string
  readonly children: ReactNode
}

/** A part of a page with a heading. */
export function Panel({ title, id, className = '', children }: PanelProps) {
  const heading = useId()
  return (
    <section className={`panel ${className}`} id={id} aria-labelledby={heading}>
      <h2 id={heading}>{title}</h2>
      {children}
    </section>
  )
}

/** A name and a value in a list of facts. */
export const Fact = ({
  name,
  children,
}: {
  readonly name: ReactNode
  readonly children: ReactNode
}) => (
  <div>
    <dt>{name}</dt>
    <dd className="outside">{children}</dd>
  </div>
)

/** Shows elements with commas between them. */
export const Commas = ({ children }: { readonly children: ReactNode }) =>
  Children.toArray(children).map((child, index) => (
    <Fragment key={index}>
      {index > 0 && ', '}
      {child}
    </Fragment>
  ))

export interface TableHeadProps {
  /** The names of the columns, with the class of a column if it has one. A name with the class `unseen` is only read aloud. */
  readonly columns: readonly (string | readonly [name: string, className: string])[]
}

export const TableHead = ({ columns }: TableHeadProps) => (
  <thead>
    <tr>
      {columns.map((column) => {
        const [name, className] = typeof column === 'string' ? [column] : column
        return (
          <th key={name} scope="col" className={className === 'unseen' ? undefined : className}>
            {className === 'unseen' ? <span className="unseen">{name}</span> : name}
          </th>
        )
      })}
    </tr>
  </thead>
)

export interface MoreButtonProps {
  readonly list: Pick<
    UseInfiniteQueryResult,
    'hasNextPage' | 'isFetchingNextPage' | 'fetchNextPage'
  >
  readonly children: ReactNode
}

/** A button that shows the next page of a list, if there is one. */
export const MoreButton = ({ list, children }: MoreButtonProps) =>
  list.hasNextPage && (
    <div className="more">
      <button
        type="button"
        aria-disabled={list.isFetchingNextPage}
        onClick={() => !list.isFetchingNextPage && void list.fetchNextPage()}
      >
        {list.isFetchingNextPage ? 'Reading…' : children}
      </button>
    </div>
  )

export interface FieldNameProps {
  /** Whether the person must fill the field in. A required field also has the attribute `required`. */
  readonly need: 'required' | 'optional'
  readonly children: ReactNode
}

/**
 * The name of a field that may be empty when it is shown, with a text that says whether the field must be filled in. A
 * field that always has a value, such as a list of choices, needs no such text.
 */
export function FieldName({ need, children }: FieldNameProps) {
  return (
    <span>
      {children} <span className="muted">({need})</span>
    </span>
  )
}
