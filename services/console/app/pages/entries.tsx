import { MoreButton } from '../parts/elements.tsx'
import { useReadPages } from '../reads.ts'
import type { EntriesView } from '../../src/contracts/entries.ts'
import { ENTRY_STATES, EntryTable } from '../parts/entry-table.tsx'
import { FilterForm, FilterLinks } from '../parts/filters.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { useQueryText } from '../router.ts'

const FIELDS = [
  { name: 'realm', label: 'Company' },
  { name: 'entity', label: 'Kind' },
  { name: 'id', label: 'Id' },
  { name: 'process', label: 'Process' },
  { name: 'transaction', label: 'Transaction' },
] as const

const STATES = Object.fromEntries(
  Object.entries(ENTRY_STATES).map(([state, { text }]) => [state, text]),
)

/** Shows what runs have written to the books, newest first. The address contains all filters. */
export function EntriesPage() {
  const text = useQueryText()
  const query = new URLSearchParams(text)
  const entries = useReadPages<EntriesView>('/entries', text, ({ Next }) => Next)
  const pages = entries.data?.pages ?? []
  const rows = pages.flatMap(({ Entries }) => Entries)
  return (
    <>
      <h1 tabIndex={-1}>Entries</h1>
      <p className="lead">
        What runs have written to the books of companies, and what has become of it since.
      </p>
      <FilterLinks
        label="States of objects"
        path="/entries"
        query={query}
        name="state"
        values={STATES}
      />
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
      <MoreButton list={entries}>Show older entries</MoreButton>
    </>
  )
}
