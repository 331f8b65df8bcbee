import type { FormEvent, ReactNode } from 'react'
import { setQuery } from '../router.ts'
import { Link } from './link.tsx'

export interface FilterFormProps {
  readonly fields: readonly { readonly name: string; readonly label: string }[]
  readonly query: URLSearchParams
  /** The choices of the form before and after its fields. */
  readonly before?: ReactNode
  readonly after?: ReactNode
  /** Adds the choices to the query. */
  readonly choose?: (form: FormData, query: URLSearchParams) => void
}

/** Puts the value of a field into a query, or removes it from the query if the field is empty. */
export function takeField(form: FormData, name: string, query: URLSearchParams): void {
  const value = form.get(name)
  if (typeof value === 'string' && value.trim() !== '') query.set(name, value.trim())
  else query.delete(name)
}

/** Shows the fields of a form. The query of the address contains their values. */
export function FilterForm({ fields, query, before, after, choose }: FilterFormProps) {
  const submit = (event: FormEvent<HTMLFormElement>): void => {
    event.preventDefault()
    const form = new FormData(event.currentTarget)
    const next = new URLSearchParams(query)
    for (const { name } of fields) takeField(form, name, next)
    choose?.(form, next)
    setQuery(next)
  }
  return (
    <form className="filters" onSubmit={submit} aria-label="Filter">
      {before}
      {fields.map(({ name, label }) => (
        <label key={name}>
          {label}
          <input name={name} defaultValue={query.get(name) ?? ''} autoComplete="off" />
        </label>
      ))}
      {after}
      <div className="buttons">
        <button type="submit">Filter</button>
      </div>
    </form>
  )
}

export interface FilterLinksProps {
  readonly label: string
  readonly path: string
  readonly query: URLSearchParams
  /** The parameter of the query that the links set. */
  readonly name: string
  /** The texts of the links, by the value of the parameter. A link to all comes before them. */
  readonly values: Readonly<Record<string, string>>
  readonly counts?: Readonly<Record<string, number | undefined>> | undefined
  readonly total?: number | undefined
}

/** Links to the same list with another value of one filter. */
export function FilterLinks(props: FilterLinksProps) {
  const { label, path, query, name, values, counts = {}, total } = props
  return (
    <nav aria-label={label} className="chips">
      {[null, ...Object.keys(values)].map((value) => {
        const other = new URLSearchParams(query)
        if (value === null) other.delete(name)
        else other.set(name, value)
        const count = value === null ? total : counts[value]
        return (
          <Link
            key={value}
            to={other.size === 0 ? path : `${path}?${other}`}
            isCurrent={value === query.get(name)}
          >
            {value === null ? 'All' : values[value]}
            {count !== undefined && (value === null || count > 0) && (
              <span className="muted"> {count}</span>
            )}
          </Link>
        )
      })}
    </nav>
  )
}

export interface ChipProps {
  /** Why the value is not used, if it is wrong. */
  readonly wrong?: string
  readonly onRemove: () => void
  readonly children: ReactNode
}

/** A value of a filter, which a click removes. */
export const Chip = ({ wrong, onRemove, children }: ChipProps) => (
  <button
    type="button"
    className={wrong === undefined ? 'chip outside' : 'chip wrong outside'}
    title={wrong}
    onClick={onRemove}
  >
    <span className="unseen">Remove the {wrong === undefined ? 'filter' : 'wrong value'} </span>
    {wrong !== undefined && <span aria-hidden="true">✕ </span>}
    {children}
    {wrong !== undefined && ' is not possible'} <span aria-hidden="true">×</span>
  </button>
)
