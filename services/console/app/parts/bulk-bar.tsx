import { useState } from 'react'
import type { BulkAction } from '../../src/contracts/bulk.ts'
import { counted } from '../../src/isomorphic/texts.ts'
import { BulkButton, type BulkCount, type BulkScope, countRuns, filterOf } from './bulk-button.tsx'
import type { ListedRun } from '../run-list.ts'
import { BlockableButton, useRole } from './blockable-button.tsx'
import { Outside } from './elements.tsx'

const ACTIONS = ['resume', 'replay', 'cancel', 'take-back'] as const satisfies readonly BulkAction[]
/** The maximum number of ids that the server accepts. */
const MAX_SELECTED = 1_000

export interface BulkBarProps {
  readonly query: URLSearchParams
  readonly processes: readonly string[]
  readonly runs: readonly ListedRun[]
  readonly onClear: () => void
}

/** The actions on the selected runs, or on all runs that match the filter. */
export function BulkBar({ query, processes, runs, onClear }: BulkBarProps) {
  const role = useRole()
  const [all, setAll] = useState<BulkCount | 'counting' | Error | null>(null)
  const ofRuns = [...new Set(runs.map(({ Process }) => Process))]
  const filtered = query.get('process') ?? (processes.length === 1 ? processes[0] : undefined)
  const isAll = all !== null && typeof all === 'object' && !(all instanceof Error)
  const matched = isAll ? all.Done + all.Skipped : 0
  const process = (isAll ? filtered : ofRuns[0]) ?? ''
  const scope: BulkScope = isAll
    ? { process, filter: all.Filter ?? {} }
    : { process, ids: [...new Set(runs.map(({ TransactionID }) => TransactionID))] }
  const blocked =
    role ??
    (isAll
      ? undefined
      : ofRuns.length > 1
        ? 'The selected runs are of several processes. An action is for the runs of one process.'
        : runs.length > MAX_SELECTED
          ? `At most ${MAX_SELECTED} runs can be selected one by one. Select all that match instead.`
          : undefined)
  const countAll = (): void => {
    if (filtered === undefined || all === 'counting') return
    setAll('counting')
    // The number of all runs that match is taken from the count for the action `cancel`. That count consists of the
    // runs that would be cancelled and the runs that would be skipped.
    countRuns(
      'cancel',
      { process: filtered, filter: filterOf(query) },
      new AbortController().signal,
      (count) => {
        if (count.Status !== 'Running') setAll(count)
      },
    ).catch((error: unknown) => setAll(error as Error))
  }
  const needsProcess = filtered === undefined ? 'Choose a process in the filter first.' : undefined
  return (
    <section className="bulk panel" aria-label="Selected runs">
      <output>
        {isAll
          ? matched === 1
            ? 'The only run that matches is selected'
            : `All ${matched} runs that match are selected`
          : counted(runs.length, 'run is selected', 'runs are selected')}
      </output>
      {!isAll && role === undefined && (
        <BlockableButton className="plain" blocked={needsProcess} onClick={countAll}>
          {all === 'counting' ? 'Counting…' : 'Select all that match'}
        </BlockableButton>
      )}
      {all instanceof Error && (
        <span className="tone-bad" role="alert">
          <Outside text={all.message} />
        </span>
      )}
      {blocked !== undefined && (
        <span className="muted" aria-hidden="true">
          {blocked}
        </span>
      )}
      <span className="buttons">
        {ACTIONS.map((action) => (
          <BulkButton
            key={action}
            action={action}
            scope={scope}
            isDataRejected={runs.some(({ DataRejected }) => DataRejected)}
            blocked={blocked}
            onStarted={onClear}
          />
        ))}
        <button type="button" className="plain" onClick={onClear}>
          Clear
        </button>
      </span>
    </section>
  )
}
