import { useInfiniteQuery } from '@tanstack/react-query'
import type { EntriesView } from '../../src/contracts/entries.ts'
import { call } from '../api.ts'
import { ENTRY_STATES, EntryTable } from '../parts/entry-table.tsx'
import { FilterForm } from '../parts/filter-form.tsx'
import { Link } from '../parts/link.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { useQueryText } from '../router.ts'

const FIELDS = [
  { name: 'realm', label: 'Company' },
  { name: 'entity', label: 'Kind' },
  { name: 'id', label: 'Id' },
  { name: 'process', label: 'Process' },
  { name: 'transaction', label: 'Transaction' },
] as const

/** Shows what runs have written to the books, newest first. The address contains all filters. */
export default function EntriesPage() {
  const text = useQueryText()
  const query = new URLSearchParams(text)
  const entries = useInfiniteQuery({
    queryKey: ['entries', text],
    queryFn: ({ pageParam }) => {
      const page = new URLSearchParams(text)
      if (pageParam !== null) page.set('cursor', pageParam)
      return call<EntriesView>('GET', `/entries?${page}`)
    },
    initialPageParam: null as string | null,
    getNextPageParam: ({ Next }) => Next,
    refetchInterval: ({ state }) => (state.status === 'error' ? 5_000 : false),
  })
  const pages = entries.data?.pages ?? []
  const rows = pages.flatMap(({ Entries }) => Entries)
  return (
    <>
      <h1 tabIndex={-1}>Entries</h1>
      <p className="lead">
        What runs have written to the books of companies, and what has become of it since.
      </p>
      <nav aria-label="States of objects" className="chips">
        {[null, ...Object.keys(ENTRY_STATES)].map((state) => {
          const other = new URLSearchParams(query)
          other.delete('state')
          if (state !== null) other.set('state', state)
          return (
            <Link
              key={state}
              to={other.size === 0 ? '/entries' : `/entries?${other}`}
              isCurrent={state === query.get('state')}
            >
              {state === null ? 'All' : (ENTRY_STATES[state]?.text ?? state)}
            </Link>
          )
        })}
      </nav>
      <FilterForm key={text} fields={FIELDS} query={query} />
      <ReadProblem error={entries.error} hasData={entries.data !== undefined} />
      {rows.length > 0 && (
        <section className="panel flush" aria-label="Entries">
          <EntryTable
            entries={rows}
            companies={Object.fromEntries(
              pages.flatMap(({ Companies }) => Object.entries(Companies)),
            )}
          />
        </section>
      )}
      {entries.isSuccess && rows.length === 0 && (
        <section className="panel" aria-label="No entries">
          <p>
            {text === ''
              ? 'No run has written to the books of a company yet.'
              : 'No entry matches these filters.'}
          </p>
        </section>
      )}
      {entries.hasNextPage && (
        <div className="more">
          <button type="button" onClick={() => void entries.fetchNextPage()}>
            Show older entries
          </button>
        </div>
      )}
    </>
  )
}
