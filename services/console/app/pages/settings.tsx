import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import type {
  AllSessions,
  EndedSessions,
  OwnSessions,
  SessionView,
} from '../../src/contracts/session.ts'
import { call } from '../api.ts'
import { full, inList, useSeconds } from '../clock.ts'
import { notify } from '../notice.ts'
import { Ago } from '../parts/ago.tsx'
import { ActionButton } from '../parts/action-button.tsx'
import { BlockableButton, roleReason } from '../parts/blockable-button.tsx'
import { Until } from '../parts/company.tsx'
import { Outside } from '../parts/text.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { choose, densities, type Settings, themes, useSettings, zones } from '../settings.ts'
import { timeStyles } from '../time-format.ts'

const THEMES = { system: 'As the system', light: 'Light', dark: 'Dark' } as const
const DENSITIES = { comfortable: 'Comfortable', compact: 'Compact' } as const
const TIMES = {
  relative: 'Relative, such as “4 min ago”',
  local: 'Time of this computer',
  utc: 'UTC',
  zone: 'Another time zone',
} as const

/** Shows the settings of this browser, and the sessions of the person. */
export function SettingsPage({ session }: { readonly session: SessionView }) {
  const settings = useSettings()
  return (
    <>
      <h1 tabIndex={-1}>Settings</h1>
      <p className="lead">
        They apply to this browser, at once and in all its tabs. No other person sees them.
      </p>
      <section className="panel settings" aria-labelledby="look">
        <h2 id="look">Look</h2>
        <Choice name="theme" title="Theme" values={themes} texts={THEMES} />
        <Choice name="density" title="Density" values={densities} texts={DENSITIES} />
      </section>
      <section className="panel settings" aria-labelledby="times">
        <h2 id="times">Times</h2>
        <Choice name="times" title="Show times as" values={timeStyles} texts={TIMES} />
        {settings.times === 'zone' && (
          <label>
            Time zone
            <select value={settings.zone} onChange={({ target }) => choose('zone', target.value)}>
              {zones.map((zone) => (
                <option key={zone}>{zone}</option>
              ))}
            </select>
          </label>
        )}
        <Example />
      </section>
      <section className="panel settings" aria-labelledby="keys">
        <h2 id="keys">Keys</h2>
        <label>
          <input
            type="checkbox"
            checked={settings.shortcuts === 'on'}
            onChange={({ target }) => choose('shortcuts', target.checked ? 'on' : 'off')}
          />
          Single keys are shortcuts
        </label>
        <p className="muted">
          Turn them off if you speak your input, or if you press keys by accident. Keys together
          with Ctrl work always.
        </p>
      </section>
      <Notices />
      <SessionList />
      <PersonList session={session} />
    </>
  )
}

/**
 * Switches desktop notices on or off. When the notices are switched on, the browser requests permission from the
 * person.
 */
function Notices() {
  const { notices } = useSettings()
  const [isDenied, setDenied] = useState(false)
  const isSupported = typeof Notification !== 'undefined'
  const change = async (isOn: boolean): Promise<void> => {
    const isAllowed = isOn && (await Notification.requestPermission()) === 'granted'
    setDenied(isOn && !isAllowed)
    choose('notices', isAllowed ? 'on' : 'off')
  }
  return (
    <section className="panel settings" aria-labelledby="notices">
      <h2 id="notices">Desktop notices</h2>
      <label>
        <input
          type="checkbox"
          checked={notices === 'on'}
          disabled={!isSupported}
          onChange={({ target }) => void change(target.checked)}
        />
        Show a notice when something critical begins
      </label>
      <p className="muted" aria-live="polite">
        {!isSupported
          ? 'This browser has no desktop notices for this address.'
          : isDenied
            ? 'The browser does not allow notices of this page. Allow them in its settings for the page.'
            : 'They are shown while a page of the console is open, also in the background.'}
      </p>
    </section>
  )
}

interface ChoiceProps<Name extends 'theme' | 'density' | 'times'> {
  readonly name: Name
  readonly title: string
  readonly values: readonly Settings[Name][]
  readonly texts: Readonly<Record<Settings[Name], string>>
}

function Choice<Name extends 'theme' | 'density' | 'times'>(props: ChoiceProps<Name>) {
  const { name, title, values, texts } = props
  const chosen = useSettings()[name]
  return (
    <fieldset>
      <legend>{title}</legend>
      {values.map((value) => (
        <label key={value}>
          <input
            type="radio"
            name={name}
            checked={chosen === value}
            onChange={() => choose(name, value)}
          />
          {texts[value]}
        </label>
      ))}
    </fieldset>
  )
}

function Example() {
  const now = new Date(useSeconds() * 1_000).toISOString()
  const { times } = useSettings()
  return (
    <p className="muted">
      In a list: {times === 'relative' ? 'just now' : inList(now)}. In full: {full(now)}.
    </p>
  )
}

function SessionList() {
  const { data, error } = useQuery({
    queryKey: ['sessions'],
    queryFn: () => call<OwnSessions>('GET', '/sessions'),
    refetchInterval: 10_000,
  })
  return (
    <section className="panel" aria-labelledby="sessions">
      <h2 id="sessions">My sessions</h2>
      <p className="muted">The browsers in which you are signed in. At most five at a time.</p>
      <ReadProblem error={error} hasData={data !== undefined} />
      {data !== undefined && (
        <table>
          <thead>
            <tr>
              <th scope="col">Browser</th>
              <th scope="col">Signed in</th>
              <th scope="col">Last use</th>
              <th scope="col">Ends</th>
              <th scope="col">
                <span className="unseen">Action</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {data.Sessions.map((session) => (
              <SessionRow key={session.Id} session={session} />
            ))}
          </tbody>
        </table>
      )}
    </section>
  )
}

function SessionRow({ session }: { readonly session: OwnSessions['Sessions'][number] }): ReactNode {
  const queries = useQueryClient()
  const end = useMutation({
    mutationFn: () => call('DELETE', `/sessions/${session.Id}`),
    onSuccess: () => notify('The session has ended.'),
    onError: (error) => notify(error.message),
    onSettled: () => queries.invalidateQueries({ queryKey: ['sessions'] }),
  })
  return (
    <tr>
      <td>{session.Browser}</td>
      <td>
        <Ago time={session.CreatedAt} />
      </td>
      <td>
        <Ago time={session.UsedAt} />
      </td>
      <td>
        <Until time={session.ExpiresAt} past="ended" />
      </td>
      <td>
        {session.IsCurrent ? (
          <span className="muted">this browser</span>
        ) : (
          <BlockableButton onClick={() => !end.isPending && end.mutate()}>
            End<span className="unseen"> the session in {session.Browser}</span>
          </BlockableButton>
        )}
      </td>
    </tr>
  )
}

type PersonSession = AllSessions['Sessions'][number]

/** Shows who is signed in. An operator can end all sessions of a person, for example of one who leaves. */
function PersonList({ session }: { readonly session: SessionView }): ReactNode {
  const queries = useQueryClient()
  const { data, error } = useQuery({
    queryKey: ['persons'],
    queryFn: () => call<AllSessions>('GET', '/persons'),
    staleTime: 0,
  })
  const byPerson = Object.groupBy(data?.Sessions ?? [], ({ User }) => User)
  const persons = Object.entries(byPerson) as [string, [PersonSession, ...PersonSession[]]][]
  return (
    <section className="panel" aria-labelledby="persons">
      <h2 id="persons">All persons</h2>
      <p className="muted">
        Who is signed in, the last used first. To keep a person out, first remove the person from
        the users file or at the sign-in provider.
      </p>
      <ReadProblem error={error} hasData={data !== undefined} />
      {data !== undefined && (
        <table>
          <thead>
            <tr>
              <th scope="col">Person</th>
              <th scope="col">Role</th>
              <th scope="col">Sessions</th>
              <th scope="col">Last use</th>
              <th scope="col">
                <span className="unseen">Action</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {persons.map(([user, sessions]) => (
              <tr key={user}>
                <td className="person">
                  <Outside text={user} />
                </td>
                <td>{sessions[0].Role}</td>
                <td>{sessions.length}</td>
                <td>
                  <Ago time={sessions[0].UsedAt} />
                </td>
                <td>
                  <ActionButton
                    verb="End"
                    isDangerous
                    object={`all sessions of ${user}`}
                    blocked={roleReason(session)}
                    consequence="The person is signed out in all browsers and tabs at once."
                    reason="none"
                    done=""
                    act={async () => {
                      const path = `/persons?user=${encodeURIComponent(user)}`
                      const { Ended } = await call<EndedSessions>('DELETE', path)
                      notify(`Sessions ended: ${Ended}.`)
                      await queries.invalidateQueries({ queryKey: ['persons'] })
                    }}
                  />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  )
}
