import { useMutation, useQuery } from '@tanstack/react-query'
import type { IntegrityView, ReplicaView, ServicesView } from '../../src/contracts/services.ts'
import type { SessionView } from '../../src/contracts/session.ts'
import { call } from '../api.ts'
import { readState } from '../live.ts'
import { duration, full, useSeconds } from '../clock.ts'
import { copy } from '../copy.ts'
import { Ago } from '../parts/ago.tsx'
import { BlockableButton, roleReason } from '../parts/blockable-button.tsx'
import { State, type Tone } from '../parts/glyph.tsx'
import { Outside } from '../parts/text.tsx'
import { doctorCommand } from '../shell-text.ts'

const STATES: Readonly<
  Record<ReplicaView['State'], { readonly tone: Tone; readonly text: string }>
> = {
  ready: { tone: 'good', text: 'Ready' },
  waiting: { tone: 'warn', text: 'Waits for a dependency' },
  unreachable: { tone: 'bad', text: 'Does not respond' },
}

/** The consequences if a service cannot be reached. These texts show a person how urgent the failure is. */
const PURPOSES: Readonly<Record<string, string>> = {
  coordinator: 'Runs the steps of the processes.',
  'token-service': 'Keeps the credentials, and refreshes the access tokens.',
  'accounting-gateway': 'Forwards the calls to the accounting API, within its limits.',
  'demo-api': 'Serves the orders of the demo.',
  'sandbox-provider': 'Simulates the provider.',
  'webhook-receiver': 'Publishes the changes that the provider reports.',
}

/** Shows the state of each replica of each service, and of its dependencies. */
export function ServicesPage({ session }: { readonly session: SessionView }) {
  const { data } = useQuery({
    queryKey: ['services'],
    queryFn: ({ client }) => readState<ServicesView>('services', client),
  })
  const services = data?.Services ?? []
  const replicas = services.flatMap(({ Replicas }) => Replicas)
  const ready = replicas.filter(({ State: state }) => state === 'ready').length
  return (
    <>
      <h1 tabIndex={-1}>Health</h1>
      <p className="lead">
        {replicas.length === 0
          ? 'The services are being checked.'
          : `${ready} of ${replicas.length} replicas ready. Every service is checked every three seconds.`}
      </p>
      {services.map(({ Name, Replicas }) => (
        <section key={Name} className="panel" aria-labelledby={`service-${Name}`}>
          <h2 id={`service-${Name}`}>{Name}</h2>
          <p className="muted">{PURPOSES[Name]}</p>
          {Replicas.map((replica) => (
            <Replica key={replica.Address} replica={replica} />
          ))}
        </section>
      ))}
      <Integrity session={session} />
      <section className="panel" aria-labelledby="doctor">
        <h2 id="doctor">Backends</h2>
        <p>
          The console does not reach the databases and the broker. On a machine that does, this
          command checks them, and names what is wrong and what helps:
        </p>
        <p className="buttons">
          <code>{doctorCommand(session.CommandLine)}</code>
          <button type="button" onClick={() => copy(doctorCommand(session.CommandLine))}>
            Copy
          </button>
        </p>
      </section>
    </>
  )
}

function Replica({ replica }: { readonly replica: ReplicaView }) {
  const { tone, text } = STATES[replica.State]
  return (
    <article className="replica">
      <header>
        <State tone={tone}>{text}</State>
        <code>{replica.Address}</code>
        {replica.State === 'unreachable' && (
          <span className="muted">
            {replica.Reason}, <Ago time={replica.Since} prefix="for " />
          </span>
        )}
      </header>
      {replica.Dependencies.length > 0 && (
        <ul className="dependencies">
          {replica.Dependencies.map((dependency) => (
            <li key={dependency.Name}>
              <State tone={dependency.Status === 'up' ? 'good' : 'bad'}>
                <Outside text={dependency.Name} />
              </State>
              {dependency.Status !== 'up' && (
                <span className="muted">
                  <Outside text={dependency.Reason ?? ''} />,{' '}
                  <Ago time={dependency.Since} prefix="for " />
                </span>
              )}
              {dependency.Notes.map((note) => (
                <span key={note} className="muted">
                  <Outside text={note} />
                </span>
              ))}
            </li>
          ))}
        </ul>
      )}
      <Figures replica={replica} />
    </article>
  )
}

function Figures({ replica }: { readonly replica: ReplicaView }) {
  const seconds = useSeconds()
  const { Version, StartedAt, LagMs, MemoryBytes, ClockOffsetMs } = replica
  if (StartedAt === null) return null
  return (
    <dl className="figures">
      <div>
        <dt>Version</dt>
        <dd>{Version ?? '—'}</dd>
      </div>
      <div>
        <dt>Up</dt>
        <dd title={`since ${full(StartedAt)}`}>
          {duration(seconds - Date.parse(StartedAt) / 1_000)}
        </dd>
      </div>
      <div>
        <dt>Event loop delay</dt>
        <dd>{LagMs === null ? '—' : `${LagMs} ms`}</dd>
      </div>
      <div>
        <dt>Memory</dt>
        <dd>{MemoryBytes === null ? '—' : `${Math.round(MemoryBytes / 1_048_576)} MB`}</dd>
      </div>
      <div>
        <dt>Clock</dt>
        <dd>
          {ClockOffsetMs === null
            ? '—'
            : ClockOffsetMs === 0
              ? 'agrees'
              : `${Math.round(ClockOffsetMs / 1_000)} s off`}
        </dd>
      </div>
    </dl>
  )
}

function Integrity({ session }: { readonly session: SessionView }) {
  const check = useMutation({ mutationFn: () => call<IntegrityView>('POST', '/integrity') })
  const broken = Object.entries(check.data?.Violations ?? {}).filter(([, count]) => count > 0)
  return (
    <section className="panel" aria-labelledby="integrity">
      <h2 id="integrity">Integrity</h2>
      <p className="muted">
        The coordinator compares its tables with each other: runs, steps, attempts and leases. A
        check reads all of them.
      </p>
      <div className="action">
        <BlockableButton
          blocked={roleReason(session)}
          onClick={() => !check.isPending && check.mutate()}
        >
          {check.isPending ? 'Checking…' : 'Check now'}
        </BlockableButton>
        {roleReason(session) !== undefined && (
          <span className="muted" aria-hidden="true">
            {roleReason(session)}
          </span>
        )}
        <output>
          {check.isError && <State tone="bad">{check.error.message}</State>}
          {check.data !== undefined &&
            (broken.length === 0 ? (
              <State tone="good">The tables agree</State>
            ) : (
              <State tone="bad">
                {broken.map(([kind, count]) => `${kind} ${count}`).join(', ')}
              </State>
            ))}
        </output>
      </div>
    </section>
  )
}
