import type { FormEvent } from 'react'
import type { RunRow, RunsView } from '../../src/contracts/runs.ts'
import { full } from '../clock.ts'
import { goTo, setQuery } from '../router.ts'
import { visible } from '../visible.ts'
import { Link } from './link.tsx'
import { Outside } from './text.tsx'

const IN_FLIGHT = ['Queued', 'Running', 'Retrying', 'Waiting'] as const

/**
 * The groups of runs above the list. Each group is a filter by status, except `inDoubt`, which is a
 * separate filter.
 */
const GROUPS = [
  { name: 'All', statuses: [] },
  { name: 'In flight', statuses: IN_FLIGHT },
  { name: 'Failed', statuses: ['Failed'] },
  { name: 'Waiting', statuses: ['Waiting'] },
  { name: 'Retrying', statuses: ['Retrying'] },
  { name: 'Completed', statuses: ['Completed'] },
  { name: 'Cancelled', statuses: ['Cancelled'] },
] as const satisfies readonly { name: string; statuses: readonly RunRow['Status'][] }[]

const FIELDS = [
  { name: 'step', label: 'Step' },
  { name: 'class', label: 'Error class' },
  { name: 'realm', label: 'Company' },
  { name: 'idPrefix', label: 'Id begins with' },
] as const

/** Each of these filters is shown as a chip, with which a person can remove this filter alone. */
const CHIPS: Readonly<Record<string, string>> = {
  process: 'Process',
  step: 'Step',
  class: 'Error class',
  realm: 'Company',
  idPrefix: 'Id begins with',
  waitingFor: 'Waits for',
  version: 'Version',
  tag: 'Tag',
  from: 'Queued from',
  until: 'Queued before',
  since: 'Changed since',
}
const TIMES = ['from', 'until', 'since']

const CHANGED_WITHIN = [
  { hours: 1, text: 'last hour' },
  { hours: 24, text: 'last 24 hours' },
  { hours: 168, text: 'last 7 days' },
] as const

/** The parameters of the address that are filters of runs. Any other parameter is ignored. */
export const FILTERS = ['status', 'inDoubt', ...Object.keys(CHIPS)]

interface FilterProps {
  readonly query: URLSearchParams
  readonly view: Pick<RunsView, 'Counts' | 'Processes'> | undefined
}

export function Groups({ query, view }: FilterProps) {
  const counts = view?.Counts ?? null
  const chosen = query.getAll('status').join()
  const isInDoubt = query.get('inDoubt') === 'true'
  const addressOf = (statuses: readonly string[], inDoubt = false): string => {
    const other = new URLSearchParams(query)
    other.delete('status')
    other.delete('inDoubt')
    for (const status of statuses) other.append('status', status)
    if (inDoubt) other.set('inDoubt', 'true')
    return other.size === 0 ? '/runs' : `/runs?${other}`
  }
  return (
    <nav aria-label="Groups of runs" className="chips">
      {GROUPS.map(({ name, statuses }) => {
        const count = statuses.reduce((sum, status) => sum + (counts?.Statuses[status] ?? 0), 0)
        return (
          <Link
            key={name}
            to={addressOf(statuses)}
            isCurrent={!isInDoubt && chosen === statuses.join()}
          >
            {name}
            {count > 0 && name !== 'Completed' && <span className="muted"> {count}</span>}
          </Link>
        )
      })}
      <Link to={addressOf([], true)} isCurrent={isInDoubt}>
        In doubt
        {(counts?.InDoubt ?? 0) > 0 && <span className="muted"> {counts?.InDoubt}</span>}
      </Link>
    </nav>
  )
}

export function Filters({ query, view }: FilterProps) {
  const submit = (event: FormEvent<HTMLFormElement>): void => {
    event.preventDefault()
    const form = new FormData(event.currentTarget)
    const next = new URLSearchParams(query)
    for (const name of ['process', ...FIELDS.map((field) => field.name)]) {
      const value = form.get(name)
      if (typeof value === 'string' && value.trim() !== '') next.set(name, value.trim())
      else next.delete(name)
    }
    const hours = Number(form.get('hours'))
    if (hours > 0) next.set('since', new Date(Date.now() - hours * 3_600_000).toISOString())
    setQuery(next)
  }
  const process = query.get('process') ?? ''
  const processes = [...new Set([...(view?.Processes ?? []), process])].filter(
    (name) => name !== '',
  )
  return (
    <form className="filters" onSubmit={submit} aria-label="Filter">
      <label>
        Process
        <select
          name="process"
          key={processes.join()}
          defaultValue={process}
          onChange={({ currentTarget }) => currentTarget.form?.requestSubmit()}
        >
          <option value="">any</option>
          {processes.map((name) => (
            <option key={name} value={name}>
              {visible(name)}
            </option>
          ))}
        </select>
      </label>
      {FIELDS.map(({ name, label }) => (
        <label key={name}>
          {label}
          <input name={name} defaultValue={query.get(name) ?? ''} autoComplete="off" />
        </label>
      ))}
      <label>
        Changed within
        <select
          name="hours"
          defaultValue=""
          onChange={({ currentTarget }) => currentTarget.form?.requestSubmit()}
        >
          <option value="">any time</option>
          {CHANGED_WITHIN.map(({ hours, text }) => (
            <option key={hours} value={hours}>
              {text}
            </option>
          ))}
        </select>
      </label>
      <div className="buttons">
        <button type="submit">Filter</button>
      </div>
    </form>
  )
}

/** Shows one chip for each value of the filters. The chip removes the value. */
export function FilterChips({
  query,
  companies,
}: {
  readonly query: URLSearchParams
  readonly companies: ReadonlyMap<string, string>
}) {
  const values = [...query].filter(([name]) => Object.hasOwn(CHIPS, name))
  if (values.length === 0) return null
  const shown = (name: string, value: string): string =>
    TIMES.includes(name) && !Number.isNaN(Date.parse(value))
      ? full(value)
      : name === 'realm'
        ? (companies.get(value) ?? value)
        : value
  return (
    <ul className="chips" aria-label="Filters">
      {values.map(([name, value]) => (
        <li key={`${name} ${value}`}>
          <button
            type="button"
            className="chip outside"
            onClick={() => {
              const next = new URLSearchParams(query)
              next.delete(name, value)
              setQuery(next)
            }}
          >
            <span className="unseen">Remove the filter </span>
            {CHIPS[name]}: <Outside text={shown(name, value)} /> <span aria-hidden="true">×</span>
          </button>
        </li>
      ))}
      <li>
        <button type="button" className="plain" onClick={() => goTo('/runs')}>
          Remove all filters
        </button>
      </li>
    </ul>
  )
}
