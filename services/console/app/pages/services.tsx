import { useMutation, useQuery } from '@tanstack/react-query'
import type { IntegrityView, ReplicaView, ServicesView } from '../../src/contracts/services.ts'
import { call } from '../api.ts'
import { readState } from '../live.ts'
import { duration, full, sizeText, useSeconds } from '../clock.ts'
import { copy } from '../notice.ts'
import { Ago } from '../parts/ago.tsx'
import { BlockableButton, useRole, useSession } from '../parts/blockable-button.tsx'
import { State, type Tone } from '../parts/glyph.tsx'
import { Commas, Outside, Panel, TableHead } from '../parts/elements.tsx'
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

const FIGURES = ['Version', 'Up', 'Event loop delay', 'Memory'] as const

/** Shows the state of each replica of each service, and of its dependencies. */
export function ServicesPage() {
  const doctor = doctorCommand(useSession().CommandLine)
  const { data } = useQuery({
    queryKey: ['services'],
    queryFn: ({ client }) => readState<ServicesView>('services', client),
  })
  const services = data?.Services ?? []
  const replicas = services.flatMap(({ Replicas }) => Replicas)
  const ready = replicas.filter(({ State: state }) => state === 'ready').length
  // The services of the embedded host have started at the same time, because they are one process.
  const [first] = replicas
  const isOneProcess =
    replicas.length > 1 &&
    first !== undefined &&
    first.StartedAt !== null &&
    replicas.every(({ StartedAt }) => StartedAt === first.StartedAt)
  return (
    <>
      <h1 tabIndex={-1}>Health</h1>
      <p className="lead">
        {replicas.length === 0
          ? 'The services are being checked.'
          : `${ready} of ${replicas.length} replicas ready. Every service is checked every three seconds.`}
        {isOneProcess && first.StartedAt !== null && (
          <>
            {' '}
            All run in one process: version {first.Version}, up for <Up since={first.StartedAt} />,{' '}
            {sizeText(first.MemoryBytes ?? 0)} of memory, event loop delay {first.LagMs} ms.
          </>
        )}
      </p>
      {services.length > 0 && (
        <div className="panel flush">
          <table aria-label="Services">
            <TableHead
              columns={[
                'Service',
                'State',
                ...(isOneProcess ? [] : FIGURES.map((name) => [name, 'figure wide'] as const)),
              ]}
            />
            <tbody>
              {services.flatMap(({ Name, Replicas }) =>
                Replicas.map((replica) => (
                  <Replica
                    key={`${Name} ${replica.Address}`}
                    name={Name}
                    replica={replica}
                    isOneProcess={isOneProcess}
                  />
                )),
              )}
            </tbody>
          </table>
        </div>
      )}
      <Integrity />
      <Panel title="Backends">
        <p>
          The console does not reach the databases and the broker. On a machine that does, this
          command checks them, and names what is wrong and what helps:
        </p>
        <p className="buttons">
          <code>{doctor}</code>
          <button type="button" onClick={() => copy(doctor)}>
            Copy
          </button>
        </p>
      </Panel>
    </>
  )
}

interface ReplicaProps {
  readonly name: string
  readonly replica: ReplicaView
  /** Whether all services run in one process, whose figures are shown above the table. */
  readonly isOneProcess: boolean
}

function Replica({ name, replica, isOneProcess }: ReplicaProps) {
  const { tone, text } = STATES[replica.State]
  const { ClockOffsetMs: offsetMs } = replica
  const up = replica.Dependencies.filter(({ Status }) => Status === 'up')
  return (
    <tr>
      <td className="outside">
        <strong>{name}</strong>
        <div>
          <code>{replica.Address}</code>
        </div>
        <div className="muted">{PURPOSES[name]}</div>
      </td>
      <td className="outside">
        <State tone={tone}>{text}</State>
        {replica.State === 'unreachable' && (
          <div className="muted">
            {replica.Reason}, <Ago time={replica.Since} prefix="for " />
          </div>
        )}
        {replica.Dependencies.filter(({ Status }) => Status !== 'up').map((dependency) => (
          <div key={dependency.Name}>
            <State tone="bad">
              <Outside text={dependency.Name} />
            </State>{' '}
            <span className="muted">
              <Outside text={dependency.Reason ?? ''} />,{' '}
              <Ago time={dependency.Since} prefix="for " />
            </span>
          </div>
        ))}
        {up.length > 0 && (
          <div className="muted">
            uses{' '}
            <Commas>
              {up.map((dependency) => (
                <Outside key={dependency.Name} text={dependency.Name} />
              ))}
            </Commas>
          </div>
        )}
        {replica.Dependencies.flatMap(({ Notes }) => Notes).map((note) => (
          <div key={note} className="muted">
            <Outside text={note} />
          </div>
        ))}
        {offsetMs !== null && offsetMs !== 0 && (
          <div>
            <State tone="warn">Its clock is {Math.round(offsetMs / 1_000)} s off</State>
          </div>
        )}
      </td>
      {!isOneProcess && <Figures replica={replica} />}
    </tr>
  )
}

function Figures({
  replica: { Version, StartedAt, LagMs, MemoryBytes },
}: Pick<ReplicaProps, 'replica'>) {
  return (
    <>
      <td className="wide outside">{Version ?? '—'}</td>
      <td className="wide">{StartedAt === null ? '—' : <Up since={StartedAt} />}</td>
      <td className="wide">{LagMs === null ? '—' : `${LagMs} ms`}</td>
      <td className="wide">{MemoryBytes === null ? '—' : sizeText(MemoryBytes)}</td>
    </>
  )
}

function Up({ since }: { readonly since: string }) {
  const seconds = useSeconds()
  return <span title={`since ${full(since)}`}>{duration(seconds - Date.parse(since) / 1_000)}</span>
}

function Integrity() {
  const role = useRole()
  const check = useMutation({ mutationFn: () => call<IntegrityView>('POST', '/integrity') })
  const broken = Object.entries(check.data?.Violations ?? {}).filter(([, count]) => count > 0)
  return (
    <Panel title="Integrity">
      <p className="muted">
        The coordinator compares its tables with each other: runs, steps, attempts and leases. A
        check reads all of them.
      </p>
      <div className="action">
        <BlockableButton blocked={role} onClick={() => !check.isPending && check.mutate()}>
          {check.isPending ? 'Checking…' : 'Check now'}
        </BlockableButton>
        {role !== undefined && (
          <span className="muted" aria-hidden="true">
            {role}
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
    </Panel>
  )
}
