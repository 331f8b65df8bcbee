import type { ChangeView, NowView } from '../../src/contracts/now.ts'
import { counted, numberText } from '../../src/isomorphic/texts.ts'
import { duration, full, timeOfDay } from '../clock.ts'
import { useLostSince } from '../live.ts'
import { urgentCount, useNow } from '../now.ts'
import { ActivityText } from '../parts/activity-text.tsx'
import { Ago, AsOf } from '../parts/ago.tsx'
import { Conditions } from '../parts/conditions.tsx'
import { Glyph, State, type Tone } from '../parts/glyph.tsx'
import { Link } from '../parts/link.tsx'
import { QueueCommand } from '../parts/queue-button.tsx'
import { Outside, Panel } from '../parts/elements.tsx'
import { useSession } from '../parts/blockable-button.tsx'

/**
 * The page Now, which opens after the sign-in. It shows what needs a person, and the state of the installation in a few
 * numbers.
 */
export function NowPage() {
  const now = useNow()
  if (now === undefined) return <h1 tabIndex={-1}>Now</h1>
  const count = now.Conditions.length
  const urgent = urgentCount(now)
  return (
    <>
      <h1 tabIndex={-1}>
        {count === 0
          ? 'Nothing needs you'
          : urgent === 0
            ? 'Nothing is urgent'
            : urgent === 1
              ? 'One thing needs you'
              : `${urgent} things need you`}
      </h1>
      {count === 0 ? <Calm now={now} /> : <Conditions conditions={now.Conditions} />}
      {now.PrometheusFailedSince !== null && (
        <p className="muted">
          Prometheus has not responded since{' '}
          <time dateTime={now.PrometheusFailedSince}>{timeOfDay(now.PrometheusFailedSince)}</time>:
          its alerts are from before.
        </p>
      )}
      {count === 0 && isNew(now) && <FirstSteps />}
      <div className="columns">
        <section
          className={`panel ${now.RunsAsOf === null ? '' : 'outdated'}`}
          aria-labelledby="runs"
        >
          <h2 id="runs">Runs</h2>
          {now.RunsAsOf !== null && <AsOf time={now.RunsAsOf} />}
          <Runs now={now} />
        </section>
        <Panel title="Services">
          <Services now={now} />
        </Panel>
      </div>
      <Panel title="What changed">
        {now.ChangesAsOf.map(({ Service, At }) => (
          <p key={Service} className="muted">
            The entries of {Service} are <AsOf time={At} />.
          </p>
        ))}
        <Changes changes={now.Changes} />
        <p className="after">
          <Link to="/activity">All activity</Link>
        </p>
      </Panel>
    </>
  )
}

const isNew = (now: NowView): boolean =>
  now.Companies?.Total === 0 || (now.Runs !== null && !now.HasRuns)

function Calm({ now }: { readonly now: NowView }) {
  const { LastEnded: last } = now
  const isOutdated = useLostSince() !== null
  return (
    <section className={`panel calm ${isOutdated ? 'outdated' : ''}`} aria-label="State">
      <Glyph tone="good" />
      <div>
        <p>Every service responds, no company must be reconnected, and no run has failed.</p>
        <p className="muted">
          {last === null ? (
            <>
              Watched since <time dateTime={now.WatchedSince}>{timeOfDay(now.WatchedSince)}</time>.
            </>
          ) : (
            <>
              Last: <Outside text={last.Title} />, ended <Ago time={last.At} />.
            </>
          )}
        </p>
      </div>
    </section>
  )
}

function FirstSteps() {
  const { Sandbox } = useSession()
  return (
    <Panel title="First steps">
      <ol className="steps">
        <li>
          <strong>Connect a company.</strong> <Link to="/companies">Companies</Link> makes a link
          for its owner
          {Sandbox ? '; open it yourself, and choose a company of the sandbox' : ''}.
        </li>
        <li>
          <strong>Queue a run.</strong> <QueueCommand />
        </li>
        <li>
          <strong>See it here.</strong> The numbers below change by themselves while it runs.
        </li>
      </ol>
    </Panel>
  )
}

function Runs({ now }: { readonly now: NowView }) {
  const { Runs: runs, Due: due, Minutes: minutes } = now
  const done = minutes.reduce((sum, { Done }) => sum + Done, 0)
  const failed = minutes.reduce((sum, { Failed }) => sum + Failed, 0)
  if (runs === null)
    return <p className="muted">The coordinator has not reported its counts yet.</p>
  return (
    <>
      <dl className="numbers">
        <Count name="In flight" value={runs.InFlight - runs.Asking} tone="info" />
        <Count name="Waiting" value={runs.Waiting + runs.Asking} tone="wait" />
        <Count name="Failed" value={runs.Failed} tone="bad" />
        <Count name="Done, last hour" value={done} tone="good" />
      </dl>
      <MinuteChart minutes={minutes} />
      <p className="muted">
        {numberText(failed)} failed in the last hour.
        {due !== null && due.Count > 0 && <DueRuns due={due} />}
      </p>
    </>
  )
}

/** Says how many runs a worker could claim at the coordinator's last count, and how old this count is. */
function DueRuns({ due }: { readonly due: NonNullable<NowView['Due']> }) {
  return (
    <>
      {' '}
      {counted(due.Count, 'run was', 'runs were')} due at the coordinator’s last count
      {due.CountedAt !== null && (
        <>
          {' '}
          (<Ago time={due.CountedAt} />)
        </>
      )}
      , {due.Count > 1 && 'the oldest '}for {duration(due.OldestSeconds)}.
    </>
  )
}

/** A count of zero has no colour, so that the other counts are noticed. */
function Count({
  name,
  value,
  tone,
}: {
  readonly name: string
  readonly value: number
  readonly tone: Tone
}) {
  return (
    <div>
      <dt>
        <State tone={value === 0 ? 'quiet' : tone}>{name}</State>
      </dt>
      <dd className={value === 0 ? 'muted' : undefined}>{numberText(value)}</dd>
    </div>
  )
}

function Services({ now }: { readonly now: NowView }) {
  const { Companies: companies } = now
  return (
    <>
      <ul className="services">
        {now.Services.map(({ Name, Ready, Replicas }) => (
          <li key={Name}>
            <span>{Name}</span>
            <State tone={Ready === Replicas ? 'good' : 'bad'}>
              {Replicas === 1
                ? Ready === 1
                  ? 'ready'
                  : 'not ready'
                : `${Ready} of ${Replicas} ready`}
            </State>
          </li>
        ))}
      </ul>
      <p className="muted">
        {companies === null
          ? 'Companies are not known yet.'
          : companies.Total === 0
            ? 'No company is connected yet.'
            : `${numberText(companies.Active)} of ${counted(companies.Total, 'company', 'companies')} active.`}{' '}
        {now.CompaniesAsOf !== null && <AsOf time={now.CompaniesAsOf} />}{' '}
        <Link to="/services">Health of all services</Link>
      </p>
    </>
  )
}

function Changes({ changes }: { readonly changes: readonly ChangeView[] }) {
  if (changes.length === 0)
    return (
      <p className="muted">
        Nothing yet. Connected companies, pauses, replays and every other action appear here.
      </p>
    )
  return (
    <ol className="changes">
      {changes.map((change) => (
        <li key={change.Key}>
          <time dateTime={change.At} title={full(change.At)}>
            {timeOfDay(change.At)}
          </time>
          <span>
            <ActivityText entry={change} hasOutcome />
            {change.Times > 1 && `, ${change.Times} times`}
          </span>
        </li>
      ))}
    </ol>
  )
}

const WIDTH = 600
const HEIGHT = 56
const BAR = WIDTH / 60

/** Draws the ended runs of each of the last 60 minutes: the completed runs, and above them the failed runs. */
function MinuteChart({ minutes }: { readonly minutes: NowView['Minutes'] }) {
  const highest = Math.max(1, ...minutes.map(({ Done, Failed }) => Done + Failed))
  const y = (count: number): number => (count / highest) * (HEIGHT - 6)
  const done = minutes.reduce((sum, { Done }) => sum + Done, 0)
  const failed = minutes.reduce((sum, { Failed }) => sum + Failed, 0)
  return (
    <figure className="chart">
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`Ended runs per minute in the last hour: ${done} completed, ${failed} failed, at most ${highest} in a minute`}
      >
        {minutes.map(({ Done, Failed }, index) => {
          const key = minutes.length - index
          const x = index * BAR + 1.5
          return (
            <g key={key}>
              <rect className="base" x={x} y={HEIGHT - 2} width={BAR - 3} height={2} rx={1} />
              {Done > 0 && (
                <rect
                  className="done"
                  x={x}
                  y={HEIGHT - 2 - y(Done)}
                  width={BAR - 3}
                  height={y(Done) + 2}
                  rx={1}
                />
              )}
              {Failed > 0 && (
                <rect
                  className="failed"
                  x={x}
                  y={HEIGHT - 2 - y(Done + Failed)}
                  width={BAR - 3}
                  height={y(Failed)}
                  rx={1}
                />
              )}
            </g>
          )
        })}
      </svg>
      <figcaption>
        <span>an hour ago</span>
        <span>per minute: completed, and failed above</span>
        <span>now</span>
      </figcaption>
    </figure>
  )
}
