import { type InfiniteData, useInfiniteQuery } from '@tanstack/react-query'
import type { ActivityEntry, ActivityView } from '../../src/contracts/activity.ts'
import type { MissingService } from '../../src/contracts/services.ts'
import { call, problemOf } from '../api.ts'
import { dayName, full, timeOfDay } from '../clock.ts'
import { DocumentLink, errorSection } from '../parts/link.tsx'
import { ActivityText } from '../parts/activity-text.tsx'
import { FilterForm, FilterLinks } from '../parts/filters.tsx'
import { State } from '../parts/glyph.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { MoreButton, Outside } from '../parts/elements.tsx'
import { useQueryText } from '../router.ts'

const KINDS: Readonly<Record<ActivityEntry['Kind'], string>> = {
  runs: 'Runs',
  processes: 'Processes',
  companies: 'Companies',
  'sign-ins': 'Sign-ins',
}
const FIELDS = [
  { name: 'person', label: 'Person' },
  { name: 'realm', label: 'Company' },
  { name: 'process', label: 'Process' },
  { name: 'id', label: 'Transaction' },
] as const

type Shown = InfiniteData<ActivityView, string | null>

/** Returns each service whose entries are missing in the pages that are shown. */
const unavailableIn = ({ pages }: Pick<Shown, 'pages'>): readonly MissingService[] => [
  ...new Map(
    pages.flatMap(({ Unavailable }) => Unavailable).map((missing) => [missing.Service, missing]),
  ).values(),
]

/** Shows who did what, newest first. The address contains all filters, so a link shows the same list. */
export function ActivityPage() {
  const text = useQueryText()
  const query = new URLSearchParams(text)
  const activity = useInfiniteQuery({
    queryKey: ['activity', text],
    queryFn: async ({ pageParam, client, queryKey }) => {
      const page = new URLSearchParams(text)
      if (pageParam !== null) page.set('before', pageParam)
      const view = await call<ActivityView>('GET', `/activity?${page}`)
      const shown = client.getQueryData<Shown>(queryKey)
      const known = shown === undefined ? null : unavailableIn(shown).map(({ Service }) => Service)
      const lost = view.Unavailable.find(({ Service }) => known?.includes(Service) === false)
      // The entries of this service that are already shown remain until they can be read again.
      if (lost !== undefined) throw problemOf(lost)
      return view
    },
    initialPageParam: null as string | null,
    getNextPageParam: ({ Next }) => Next,
    refetchInterval: ({ state: { status, data } }) =>
      status === 'error' || (data !== undefined && unavailableIn(data).length > 0) ? 5_000 : false,
  })
  const unavailable = activity.data === undefined ? [] : unavailableIn(activity.data)
  const entries = activity.data?.pages.flatMap(({ Entries }) => Entries) ?? []
  const days = Map.groupBy(entries, ({ At }) => dayName(At))
  const since = activity.data?.pages[0]?.SignInsSince
  return (
    <>
      <h1 tabIndex={-1}>Activity</h1>
      <p className="lead">
        Actions of persons and keys, and what happened to the connections of companies.
        {since !== undefined && ` Sign-ins are listed since ${full(since)}.`}
      </p>
      <FilterLinks
        label="Kinds of entries"
        path="/activity"
        query={query}
        name="kind"
        values={KINDS}
      />
      <FilterForm key={text} fields={FIELDS} query={query} />
      <ReadProblem error={activity.error} hasData={activity.data !== undefined} />
      {activity.error === null &&
        unavailable.map((missing) => (
          <ReadProblem key={missing.Service} error={problemOf(missing)} hasData={false} />
        ))}
      {[...days].map(([day, ofDay]) => (
        <section key={day} className="panel" aria-label={day}>
          <h2 className="day">{day}</h2>
          <ol className="activity">
            {ofDay.map((entry) => (
              <Entry key={entry.Key} entry={entry} />
            ))}
          </ol>
        </section>
      ))}
      {activity.isPending && activity.error === null && (
        <p className="muted">The logs are being read.</p>
      )}
      {activity.isSuccess && unavailable.length === 0 && entries.length === 0 && (
        <section className="panel" aria-label="No activity">
          <p>
            {activity.hasNextPage
              ? 'Nothing among the newest entries matches.'
              : text === ''
                ? 'Nothing has been done yet.'
                : 'Nothing matches these filters.'}
          </p>
        </section>
      )}
      <MoreButton list={activity}>Show older entries</MoreButton>
    </>
  )
}

function Entry({ entry }: { readonly entry: ActivityEntry }) {
  const { At, Outcome, Rejected } = entry
  return (
    <li>
      <time dateTime={At} title={full(At)}>
        {timeOfDay(At)}
      </time>
      <span>
        <ActivityText entry={entry} />
      </span>
      {Outcome !== null && (
        <span>
          {Rejected && entry.Kind !== 'companies' ? (
            <DocumentLink to={errorSection(Outcome)}>
              <State tone="warn">
                <Outside text={Outcome} />
              </State>
            </DocumentLink>
          ) : (
            <State tone={Rejected ? 'warn' : 'quiet'}>
              <Outside text={Outcome} />
            </State>
          )}
        </span>
      )}
    </li>
  )
}
