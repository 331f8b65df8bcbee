import { useRead } from '../reads.ts'
import type { ProcessesView } from '../../src/contracts/processes.ts'
import { counted, numberText } from '../../src/isomorphic/texts.ts'
import { processPage } from '../../src/isomorphic/pages.ts'
import { useNow } from '../now.ts'
import { Until } from '../parts/company.tsx'
import { State } from '../parts/glyph.tsx'
import { Link } from '../parts/link.tsx'
import { ReadProblem } from '../parts/problem.tsx'
import { Commas, Outside, TableHead } from '../parts/elements.tsx'
import { failureRate, runsOf, startsText } from '../process-texts.ts'
import { FAILED, IN_FLIGHT, type Status } from '../run-query.ts'

/** Lists the processes: what starts them, how their runs do, and when their schedules begin runs. */
export function ProcessesPage() {
  const { data, error } = useRead<ProcessesView>(['processes'], '/processes')
  return (
    <>
      <h1 tabIndex={-1}>Processes</h1>
      <ReadProblem error={error} hasData={data !== undefined} />
      {data !== undefined && (
        <div className="panel flush">
          <table aria-label="Processes">
            <TableHead
              columns={[
                ['Process', 'process'],
                ['State', 'narrow'],
                'Runs',
                ['Started by', 'wide starts'],
              ]}
            />
            <tbody>
              {data.NotLoaded.map(({ Process: name, Unfinished }) => (
                <tr key={name}>
                  <td className="outside">
                    <Outside text={name} />
                  </td>
                  <td>
                    <State tone="bad">Not loaded</State>
                  </td>
                  <td colSpan={2}>
                    No coordinator has loaded this process.{' '}
                    {counted(Unfinished, 'unfinished run does', 'unfinished runs do')} not continue.
                    Deploy its definition.
                  </td>
                </tr>
              ))}
              {data.Processes.map((process) => (
                <ProcessRow
                  key={process.Process}
                  process={process}
                  schedules={data.Schedules.filter(({ Process }) => Process === process.Process)}
                />
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  )
}

interface ProcessRowProps {
  readonly process: ProcessesView['Processes'][number]
  readonly schedules: ProcessesView['Schedules']
}

function ProcessRow({ process, schedules }: ProcessRowProps) {
  const { Process: name } = process
  const counts = useNow()?.RunsOf.find((one) => one.Process === name)
  const next = schedules.flatMap(({ NextTimes }) => NextTimes.slice(0, 1)).toSorted()[0]
  const groups: readonly (readonly [number, string, readonly Status[]])[] =
    counts === undefined
      ? []
      : [
          [counts.InFlight, 'in flight', IN_FLIGHT],
          [counts.Waiting, 'waiting', ['Waiting']],
          [counts.Failed, 'failed', FAILED],
        ]
  return (
    <tr>
      <td className="outside">
        <Link to={processPage(name)} text={name} />
        {process.BuiltIn && <div className="muted">part of the coordinator</div>}
      </td>
      <td>
        {process.Paused ? <State tone="wait">Paused</State> : <State tone="good">Active</State>}
      </td>
      <td>
        <Commas>
          {groups
            .filter(([count]) => count > 0)
            .map(([count, text, statuses]) => (
              <Link key={text} to={runsOf(name, statuses)}>
                {numberText(count)} {text}
              </Link>
            ))}
        </Commas>
        {counts !== undefined && (
          <div className="muted">Last hour: {failureRate(counts.LastHour)}</div>
        )}
      </td>
      <td className="wide outside">
        <Outside text={startsText(process, schedules)} />
        {next !== undefined && (
          <div className="muted">
            next <Until time={next} past="now" />
          </div>
        )}
      </td>
    </tr>
  )
}
