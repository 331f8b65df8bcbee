import type { FormEvent } from 'react'
import { setQuery } from '../router.ts'

export interface FilterFormProps {
  readonly fields: readonly { readonly name: string; readonly label: string }[]
  readonly query: URLSearchParams
}

/** Shows the fields of a form. The query of the address contains their values. */
export function FilterForm({ fields, query }: FilterFormProps) {
  const submit = (event: FormEvent<HTMLFormElement>): void => {
    event.preventDefault()
    const form = new FormData(event.currentTarget)
    const next = new URLSearchParams(query)
    for (const { name } of fields) {
      const value = form.get(name)
      if (typeof value === 'string' && value.trim() !== '') next.set(name, value.trim())
      else next.delete(name)
    }
    setQuery(next)
  }
  return (
    <form className="filters" onSubmit={submit} aria-label="Filter">
      {fields.map(({ name, label }) => (
        <label key={name}>
          {label}
          <input name={name} defaultValue={query.get(name) ?? ''} autoComplete="off" />
        </label>
      ))}
      <div className="buttons">
        <button type="submit">Filter</button>
      </div>
    </form>
  )
}
