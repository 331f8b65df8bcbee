import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import type { AllSessions, EndedSessions, OwnSessions } from '../../src/contracts/session.ts'
import { call } from '../api.ts'
import { full, inList, useSeconds } from '../clock.ts'
import { notify } from '../notice.ts'
import { Ago } from '../parts/ago.tsx'
import { ActionButton } from '../parts/action-button.tsx'
import { BlockableButton } from '../parts/blockable-button.tsx'
import { Until } from '../parts/company.tsx'
import { Outside, Panel, TableHead } from '../parts/elements.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { choose, densities, type Settings, themes, useSettings, zones } from '../settings.ts'
import { timeStyles } from '../time-format.ts'
import { useRead } from '../reads.ts'

/** The head of a column with buttons, which only screen readers need. */
const ACTION = ['Action', 'unseen'] as const

const THEMES = { system: 'As the system', light: 'Light', dark: 'Dark' } as const
const DENSITIES = { comfortable: 'Comfortable', compact: 'Compact' } as const
const TIMES = {
  relative: 'Relative, such as “4 min ago”',
  local: 'Time of this computer',
  utc: 'UTC',
  zone: 'Another time zone',
} as const

/** Shows the settings of this browser, and the sessions of the person. */
export function SettingsPage() {
  const settings = useSettings()
  return (
    <>
      <h1 tabIndex={-1}>Settings</h1>
      <p className="lead">
        They apply to this browser, at once and in all its tabs. No other person sees them.
      </p>
      <Panel title="Look" className="settings">
        <Choice name="theme" title="Theme" values={themes} texts={THEMES} />
        <Choice name="density" title="Density" values={densities} texts={DENSITIES} />
      </Panel>
      <Panel title="Times" className="settings">
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
      </Panel>
      <Panel title="Keys" className="settings">
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
      </Panel>
      <Notices />
      <SessionList />
      <PersonList />
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
    <Panel title="Desktop notices" className="settings">
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
    </Panel>
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
  const { data, error } = useRead<OwnSessions>(['sessions'], '/sessions', {
    refetchInterval: 10_000,
  })
  return (
    <Panel title="My sessions">
      <p className="muted">The browsers in which you are signed in. At most five at a time.</p>
      <ReadProblem error={error} hasData={data !== undefined} />
      {data !== undefined && (
        <table>
          <TableHead columns={['Browser', 'Signed in', 'Last use', 'Ends', ACTION]} />
          <tbody>
            {data.Sessions.map((session) => (
              <SessionRow key={session.Id} session={session} />
            ))}
          </tbody>
        </table>
      )}
    </Panel>
  )
}

function SessionRow({ session }: { readonly session: OwnSessions['Sessions'][number] }) {
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
function PersonList() {
  const queries = useQueryClient()
  const { data, error } = useRead<AllSessions>(['persons'], '/persons', { staleTime: 0 })
  const byPerson = Object.groupBy(data?.Sessions ?? [], ({ User }) => User)
  const persons = Object.entries(byPerson) as [string, [PersonSession, ...PersonSession[]]][]
  return (
    <Panel title="All persons">
      <p className="muted">
        Who is signed in, the last used first. To keep a person out, first remove the person from
        the users file or at the sign-in provider.
      </p>
      <ReadProblem error={error} hasData={data !== undefined} />
      {data !== undefined && (
        <table>
          <TableHead columns={['Person', 'Role', 'Sessions', 'Last use', ACTION]} />
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
    </Panel>
  )
}
