import { useQuery } from '@tanstack/react-query'
import { type FormEvent, useState } from 'react'
import type { Excerpt, RunDataView, RunView } from '../../src/contracts/runs.ts'
import { runPage } from '../../src/isomorphic/pages.ts'
import { call } from '../api.ts'
import { setQuery } from '../router.ts'
import { visible } from '../visible.ts'
import { DiffView } from './diff-view.tsx'
import { FieldName } from './field-name.tsx'
import { Link } from './link.tsx'
import { ReadProblem } from './problem.tsx'
import { Outside } from './text.tsx'

/** The run with which the shown run is compared. Both members are read from the address of the page. */
interface Compared {
  readonly id: string
  /** The number of the run; `null` for the latest run. */
  readonly run: string | null
}

/**
 * Returns the run with which an address requests a comparison; `null` if the address requests none. If the run belongs
 * to the same transaction as the shown run, the address need not contain the id of the transaction.
 */
function comparedIn(query: URLSearchParams, id: string): Compared | null {
  const run = query.get('withRun')
  const other = query.get('with') ?? (run === null ? null : id)
  return other === null || other === '' ? null : { id: other, run }
}

function compareWith(id: string, other: Compared | null): void {
  const query = new URLSearchParams(location.search)
  query.delete('with')
  query.delete('withRun')
  if (other !== null && other.id !== id) query.set('with', other.id)
  if (other !== null && other.run !== null) query.set('withRun', other.run)
  setQuery(query)
}

export interface RunComparisonProps {
  readonly run: RunView
  readonly query: URLSearchParams
  readonly onClose: () => void
}

/** Compares the data and the responses of two runs of the same process. */
export default function RunComparison({ run, query, onClose }: RunComparisonProps) {
  const { Process: process, TransactionID: id } = run
  const compared = comparedIn(query, id)
  return (
    <>
      <h3>Compare with another run</h3>
      <OtherRun key={JSON.stringify(compared)} run={run} compared={compared} onClose={onClose} />
      {compared !== null && (
        <Comparison process={process} run={{ id, run: String(run.ReplayID) }} other={compared} />
      )}
    </>
  )
}

interface OtherRunProps extends Omit<RunComparisonProps, 'query'> {
  readonly compared: Compared | null
}

/**
 * Lets the person choose the other run: another run of the same transaction, or the latest run of a transaction whose
 * id the person types.
 */
function OtherRun({ run, compared, onClose }: OtherRunProps) {
  const { TransactionID: id, ReplayID } = run
  const others = run.Runs.filter((one) => one.ReplayID !== ReplayID)
  const isOtherId = compared !== null && compared.id !== id
  const [choice, setChoice] = useState(
    isOtherId || others.length === 0 ? 'other' : (compared?.run ?? String(others[0]?.ReplayID)),
  )
  const submit = (event: FormEvent<HTMLFormElement>): void => {
    event.preventDefault()
    const form = new FormData(event.currentTarget)
    const typed = form.get('id')
    if (choice !== 'other') compareWith(id, { id, run: choice })
    else if (typeof typed === 'string' && typed !== '') compareWith(id, { id: typed, run: null })
  }
  return (
    <form className="filters" onSubmit={submit} aria-label="Compare with another run">
      <label>
        Compare with
        <select value={choice} onChange={({ currentTarget }) => setChoice(currentTarget.value)}>
          {others.map(({ ReplayID: other, Status }) => (
            <option key={other} value={other}>
              run {other} of {visible(id)} ({Status})
            </option>
          ))}
          <option value="other">another transaction</option>
        </select>
      </label>
      {choice === 'other' && (
        <label>
          <FieldName need="required">Its id</FieldName>
          <input
            name="id"
            required
            maxLength={128}
            autoComplete="off"
            defaultValue={isOtherId ? compared.id : ''}
          />
        </label>
      )}
      <div className="buttons">
        <button type="submit">Compare</button>
        <button
          type="button"
          className="plain"
          onClick={() => {
            compareWith(id, null)
            onClose()
          }}
        >
          Close the comparison
        </button>
      </div>
    </form>
  )
}

interface ComparisonProps {
  readonly process: string
  readonly run: Compared
  readonly other: Compared
}

function Comparison({ process, run, other }: ComparisonProps) {
  const left = useRunData(process, run)
  const right = useRunData(process, other)
  const names = [nameOf(run, other, left.data), nameOf(other, run, right.data)] as const
  return (
    <>
      <ReadProblem error={left.error ?? right.error} hasData={false} />
      {left.isLoading || right.isLoading ? <p className="muted">The data is being read.</p> : null}
      {left.data !== undefined && right.data !== undefined && (
        <>
          <p>
            On the left <Outside text={names[0]} />, on the right{' '}
            <Link to={runPage(process, other.id, right.data.ReplayID)}>
              <Outside text={names[1]} />
            </Link>
            .
          </p>
          {textsOf(left.data, right.data).map(({ name, one, two }) => (
            <DiffView
              key={name}
              name={name}
              left={side(names[0], one)}
              right={side(names[1], two)}
            />
          ))}
        </>
      )}
    </>
  )
}

const useRunData = (process: string, { id, run }: Compared) =>
  useQuery({
    queryKey: ['run', process, id, 'compared', run],
    queryFn: () =>
      call<RunDataView>(
        'GET',
        `${runPage(process, id)}/data${run === null ? '' : `?run=${encodeURIComponent(run)}`}`,
      ),
  })

function nameOf(of: Compared, other: Compared, data: RunDataView | undefined): string {
  const run = `run ${data?.ReplayID ?? of.run ?? ''}`
  return of.id === other.id ? run : `${visible(of.id)}, ${run}`
}

const side = (name: string, excerpt: Excerpt) => ({
  name,
  text: excerpt?.Text ?? null,
  isCut: excerpt?.IsWhole === false,
})

/** Returns each text that at least one of the runs has. The texts of steps are in the order of the left run. */
function textsOf(
  left: RunDataView,
  right: RunDataView,
): readonly { readonly name: string; readonly one: Excerpt; readonly two: Excerpt }[] {
  const steps = new Set([...left.Items, ...right.Items].map(({ StepName }) => StepName))
  const itemOf = ({ Items }: RunDataView, step: string) =>
    Items.find(({ StepName }) => StepName === step)
  const pairs = [
    { name: 'Initial data', one: left.InitialData, two: right.InitialData },
    ...[...steps].flatMap((step) => {
      const one = itemOf(left, step)
      const two = itemOf(right, step)
      return [
        { name: `Data of ${step}`, one: one?.Data ?? null, two: two?.Data ?? null },
        {
          name: `Response of ${step}`,
          one: one?.ResponseBody ?? null,
          two: two?.ResponseBody ?? null,
        },
      ]
    }),
  ]
  return pairs.filter(({ one, two }) => one !== null || two !== null)
}
