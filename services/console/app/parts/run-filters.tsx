import { useSyncExternalStore } from 'react'
import { Chip, FilterForm, takeField } from './filters.tsx'
import type { RunCounts } from '../../src/contracts/now.ts'
import type { RunsView } from '../../src/contracts/runs.ts'
import { full } from '../clock.ts'
import { useNow, useRunCounts } from '../now.ts'
import { goTo, setQuery } from '../router.ts'
import { FAILED, IN_FLIGHT, type RunQuery, type Status } from '../run-query.ts'
import { serverNow } from '../server-clock.ts'
import { visible } from '../visible.ts'
import { AsOf } from './ago.tsx'
import { Link } from './link.tsx'
import { Outside } from './elements.tsx'

/**
 * The groups of runs above the list. Each group is a filter by status, except `inDoubt`, which is a
 * separate filter. A failed run in doubt is in two groups.
 */
const GROUPS: readonly {
  readonly name: string
  readonly statuses: readonly Status[]
  readonly count?: (counts: RunCounts) => number
}[] = [
  { name: 'All', statuses: [] },
  { name: 'In flight', statuses: IN_FLIGHT, count: ({ InFlight }) => InFlight },
  {
    name: 'Needs attention',
    statuses: [...FAILED, 'Waiting'],
    count: ({ Failed, Waiting }) => Failed + Waiting,
  },
  { name: 'Failed', statuses: FAILED, count: ({ Failed }) => Failed },
  { name: 'Waiting', statuses: ['Waiting'], count: ({ Waiting }) => Waiting },
  { name: 'Retrying', statuses: ['Retrying'], count: ({ Retrying }) => Retrying },
  { name: 'Completed', statuses: ['Completed'] },
  { name: 'Cancelled', statuses: ['Cancelled'], count: ({ Cancelled }) => Cancelled },
]

const FIELDS = [
  { name: 'step', label: 'Step' },
  { name: 'class', label: 'Error' },
  { name: 'realm', label: 'Company' },
  { name: 'idPrefix', label: 'Id begins with' },
] as const

/**
 * The names of the filters. Filters that are neither groups nor the order are shown as chips. A click on a chip removes
 * only this filter.
 */
const NAMES: Readonly<Record<string, string>> = {
  status: 'Status',
  inDoubt: 'In doubt',
  order: 'Order',
  process: 'Process',
  step: 'Step',
  class: 'Error class',
  realm: 'Company',
  children: 'Children',
  idPrefix: 'Id begins with',
  waitingFor: 'Waits for',
  priority: 'Priority',
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

/** The filters that are shown as groups or as the order, not as chips. */
const WITHOUT_CHIP = ['status', 'inDoubt', 'order']

interface FilterProps {
  readonly query: URLSearchParams
  readonly view: Pick<RunsView, 'Processes'> | undefined
}

export function Groups({ query }: { readonly query: URLSearchParams }) {
  const asOf = useNow()?.RunsAsOf ?? null
  const counts = useRunCounts(query.get('process'))
  const chosen = query.getAll('status').join()
  const isInDoubt = query.get('inDoubt') === 'true'
  // The numbers count children, so a list with a number has them.
  const addressOf = (statuses: readonly string[], hasNumber: boolean, inDoubt = false): string => {
    const other = new URLSearchParams(query)
    other.delete('status')
    other.delete('inDoubt')
    for (const status of statuses) other.append('status', status)
    if (inDoubt) other.set('inDoubt', 'true')
    if (hasNumber) other.set('children', 'true')
    return other.size === 0 ? '/runs' : `/runs?${other}`
  }
  return (
    <>
      <nav aria-label="Groups of runs" className={`chips ${asOf === null ? '' : 'outdated'}`}>
        {GROUPS.map(({ name, statuses, count: countOf }) => {
          const count = counts === undefined ? 0 : (countOf?.(counts) ?? 0)
          return (
            <Link
              key={name}
              to={addressOf(statuses, countOf !== undefined)}
              isCurrent={!isInDoubt && chosen === statuses.join()}
            >
              {name}
              {count > 0 && <span className="muted"> {count}</span>}
            </Link>
          )
        })}
        {(counts?.Asking ?? 0) > 0 && (
          <Link to="/runs?status=Retrying&class=step_waits&children=true">
            Asks again <span className="muted">{counts?.Asking}</span>
          </Link>
        )}
        <Link to={addressOf([], true, true)} isCurrent={isInDoubt}>
          In doubt
          {(counts?.InDoubt ?? 0) > 0 && <span className="muted"> {counts?.InDoubt}</span>}
        </Link>
      </nav>
      {asOf !== null && (
        <p className="muted">
          Numbers <AsOf time={asOf} />
        </p>
      )}
    </>
  )
}

/** Below this width, the list of runs has lines instead of columns. The style sheet has the same width. */
const narrow = window.matchMedia('(max-width: 767px)')

function subscribe(listener: () => void): () => void {
  narrow.addEventListener('change', listener)
  return () => narrow.removeEventListener('change', listener)
}

/** Returns whether the window is too narrow for the columns of the list of runs. */
export const useIsNarrow = (): boolean => useSyncExternalStore(subscribe, () => narrow.matches)

/** Shows the filters and the order, which are folded in a narrow window. */
export function Filters(props: FilterProps) {
  return useIsNarrow() ? (
    <details>
      <summary>Filter and order</summary>
      <FilterFields {...props} />
    </details>
  ) : (
    <FilterFields {...props} />
  )
}

function FilterFields({ query, view }: FilterProps) {
  const chooseMore = (form: FormData, next: URLSearchParams): void => {
    takeField(form, 'process', next)
    const hours = Number(form.get('hours'))
    if (hours > 0) next.set('since', new Date(serverNow() - hours * 3_600_000).toISOString())
  }
  const process = query.get('process') ?? ''
  const processes = [...new Set([...(view?.Processes ?? []), process])].filter(
    (name) => name !== '',
  )
  return (
    <FilterForm
      fields={FIELDS}
      query={query}
      choose={chooseMore}
      before={
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
      }
      after={
        <>
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
          <Order query={query} />
        </>
      }
    />
  )
}

type CompanyNames = ReadonlyMap<string, string>

/** Returns the text of a filter, such as `Error class: http_503`. */
export function filterText(name: string, value: string, companies: CompanyNames): string {
  if (name === 'children') return value === 'true' ? 'With children' : 'Without children'
  if (name === 'inDoubt') return value === 'true' ? 'In doubt' : 'Not in doubt'
  const shown =
    TIMES.includes(name) && !Number.isNaN(Date.parse(value))
      ? full(value)
      : name === 'realm'
        ? (companies.get(value) ?? value)
        : value
  const label = name === 'class' && /^\d+$/.test(value) ? 'Error code' : NAMES[name]
  return `${label ?? name}: ${shown}`
}

export interface FilterChipsProps extends RunQuery {
  readonly companies: CompanyNames
}

/**
 * Shows one chip for each value of the filters. The chip removes the value. A wrong value also has a chip, which says
 * that the list is not filtered by this value.
 */
export function FilterChips({ query, wrong, companies }: FilterChipsProps) {
  const values = [...query].filter(([name]) => !WITHOUT_CHIP.includes(name))
  if (values.length === 0 && wrong.length === 0) return null
  return (
    <ul className="chips" aria-label="Filters">
      {values.map(([name, value]) => (
        <li key={`${name} ${value}`}>
          <Chip
            onRemove={() => {
              const next = new URLSearchParams(query)
              next.delete(name, value)
              setQuery(next)
            }}
          >
            <Outside text={filterText(name, value, companies)} />
          </Chip>
        </li>
      ))}
      {wrong.map(([name, value], index) => (
        // The same wrong value may be given twice.
        <li key={`${name} ${value} ${index}`}>
          <Chip
            wrong="The coordinator does not accept this value, so it is not used."
            onRemove={() => {
              const next = new URLSearchParams(location.search)
              next.delete(name, value)
              setQuery(next)
            }}
          >
            <Outside text={filterText(name, value, companies)} />
          </Chip>
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

/** Chooses the time by which the list is ordered. The newest run is always the first one. */
function Order({ query }: { readonly query: URLSearchParams }) {
  return (
    <label>
      Order
      <select
        value={query.get('order') ?? 'created'}
        onChange={({ currentTarget }) => {
          const next = new URLSearchParams(query)
          if (currentTarget.value === 'created') next.delete('order')
          else next.set('order', currentTarget.value)
          setQuery(next)
        }}
      >
        <option value="created">newest first</option>
        <option value="updated">last changed first</option>
      </select>
    </label>
  )
}
