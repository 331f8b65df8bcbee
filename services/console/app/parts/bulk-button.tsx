import { useEffect, useState } from 'react'
import type { BulkAction, BulkView } from '../../src/contracts/bulk.ts'
import { counted } from '../../src/isomorphic/texts.ts'
import { bulkPage } from '../../src/isomorphic/pages.ts'
import { call } from '../api.ts'
import { duration } from '../clock.ts'
import { goTo } from '../router.ts'
import { ActionButton, reasonOf } from './action-button.tsx'
import { Link } from './link.tsx'
import { ProblemHelp } from './problem.tsx'
import { Outside } from './elements.tsx'

/** The runs of an action on many runs: those that a person has selected, or all that match a filter. */
export type BulkScope = { readonly process: string } & (
  | { readonly ids: readonly string[] }
  | { readonly filter: BulkFilter }
)
export type BulkFilter = Readonly<Record<string, unknown>>

export type BulkCount = Pick<BulkView, 'ID' | 'Status' | 'Filter' | 'Done' | 'Skipped'> & {
  readonly Failed: number
}

const POLL_MS = 300

/** Returns the runs of a scope as members of the body of `POST /api/bulk`. */
const scopeBody = (scope: BulkScope) => ({
  Process: scope.process,
  ...('ids' in scope ? { Ids: scope.ids } : { Filter: scope.filter }),
})

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

/** Counts the runs of a scope. Calls `onCount` with each intermediate count and with the final one. */
export async function countRuns(
  action: BulkAction,
  scope: BulkScope,
  signal: AbortSignal,
  onCount: (count: BulkCount) => void,
): Promise<void> {
  const body = { Action: action, ...scopeBody(scope), DryRun: true }
  let count = await call<BulkCount>('POST', '/bulk', body)
  const path = `/bulk/${encodeURIComponent(count.ID)}`
  while (count.Status === 'Running') {
    if (signal.aborted) {
      // No component needs the result any more, so the count is stopped.
      await call('POST', `${path}/stop`, { Reason: 'the count is not needed' }).catch(() => {})
      return
    }
    onCount(count)
    await pause(POLL_MS)
    count = await call<BulkCount>('GET', path)
  }
  if (!signal.aborted) onCount(count)
}

interface CountState {
  readonly count: BulkCount | null
  readonly error: Error | null
}

/**
 * Counts the runs of an action and a scope while the component is shown. The runs are counted once for each combination
 * of action and scope.
 */
function useCount(
  action: BulkAction,
  scope: BulkScope,
  onChange: (state: CountState) => void,
): void {
  const text = JSON.stringify(scope)
  useEffect(() => {
    const closing = new AbortController()
    onChange({ count: null, error: null })
    countRuns(action, JSON.parse(text) as BulkScope, closing.signal, (count) =>
      onChange({ count, error: null }),
    ).catch((error: unknown) => {
      if (!closing.signal.aborted) onChange({ count: null, error: error as Error })
    })
    return () => closing.abort()
  }, [action, text, onChange])
}

/** The members of a filter, from the query of the list of runs. */
export function filterOf(query: URLSearchParams): BulkFilter {
  const names = [...new Set(query.keys())].filter((name) => name !== 'process' && name !== 'order')
  return Object.fromEntries(
    names.map((name) => {
      const values = query.getAll(name)
      return [name, values.length === 1 ? values[0] : values]
    }),
  )
}

/** For an action on more runs than this, the person must type the number of runs. */
const TYPED_ABOVE = 50
const USUAL_RATE = 20

export const BULK_VERBS: Readonly<Record<BulkAction, string>> = {
  resume: 'Resume',
  replay: 'Replay',
  cancel: 'Cancel runs',
  'take-back': 'Take back',
}

const CONSEQUENCES: Readonly<Record<BulkAction, string>> = {
  resume:
    'Each run continues at its step with the same idempotency keys. A target that knows them does nothing twice.',
  replay:
    'A new run begins for each transaction, with new idempotency keys: calls are made again that were already completed. What the runs have created in the books is created once more, except by createOnce.',
  cancel: 'Each run ends. A call in flight is aborted, and may nevertheless have done its work.',
  'take-back':
    'What these transactions have created in the books is deleted or made inactive, of all their runs. What was changed or paid since is left. A replay creates it again.',
}

/** What a person must know before an action sends data again that was rejected. */
export const REJECTED_AGAIN =
  'The same data is sent again: it is rejected again, unless the cause at the target or in the step was removed.'

export interface BulkButtonProps {
  readonly action: BulkAction
  readonly scope: BulkScope
  /** The text of the button on the page, if it is not the verb of the action. */
  readonly label?: string
  /** Whether the runs have failed because their data was rejected. A resume is then the less helpful action. */
  readonly isDataRejected?: boolean
  readonly blocked?: string | undefined
  readonly onStarted?: () => void
}

/**
 * Acts on many runs. Before that, the coordinator counts the runs, and the person sees the number.
 */
export function BulkButton(props: BulkButtonProps) {
  const { action, scope, label, isDataRejected = false, blocked, onStarted } = props
  const [state, setState] = useState<CountState>({ count: null, error: null })
  const [withDoubt, setWithDoubt] = useState(false)
  const [rate, setRate] = useState(USUAL_RATE)
  const { count } = state
  // Resuming a run in doubt repeats the call whose effect is unknown; other actions do not repeat this call. Runs in
  // doubt can be left out only if a filter selects the runs.
  const asksDoubt =
    action === 'resume' && 'filter' in scope && scope.filter['inDoubt'] === undefined
  const scopeToCount: BulkScope =
    asksDoubt && !withDoubt ? { ...scope, filter: { ...scope.filter, inDoubt: false } } : scope
  const isReady = count !== null && count.Status !== 'Running' && count.Done > 0
  const start = async (form: FormData, key: string): Promise<void> => {
    // The filter that the count returns contains the time of the count, so that the action changes
    // no run that was queued later.
    const body = {
      Action: action,
      ...scopeBody(scopeToCount),
      ...(count?.Filter !== undefined && count.Filter !== null && { Filter: count.Filter }),
      PerSecond: rate,
      ...reasonOf(form),
    }
    const { ID } = await call<BulkView>('POST', '/bulk', body, key)
    onStarted?.()
    goTo(`${bulkPage(ID)}?of=${(count?.Done ?? 0) + (count?.Skipped ?? 0)}`)
  }
  return (
    <ActionButton
      verb={BULK_VERBS[action]}
      label={label}
      blocked={blocked}
      subject={JSON.stringify([scopeToCount, rate])}
      {...(action === 'cancel' && { question: 'Cancel', isDangerous: true })}
      {...(action === 'take-back' && { isDangerous: true })}
      object={`${isReady ? counted(count.Done, 'run') : 'runs'} of ${scope.process}`}
      consequence={
        isDataRejected && (action === 'resume' || action === 'replay')
          ? `${CONSEQUENCES[action]} ${REJECTED_AGAIN}`
          : CONSEQUENCES[action]
      }
      reason="required"
      {...(isReady && count.Done > TYPED_ABOVE && { typed: String(count.Done) })}
      isReady={isReady}
      act={start}
      done=""
    >
      <Count action={action} scope={scopeToCount} state={state} rate={rate} onChange={setState} />
      {asksDoubt && (
        <label className="choice">
          <input
            type="checkbox"
            checked={withDoubt}
            onChange={({ currentTarget }) => setWithDoubt(currentTarget.checked)}
          />
          Also runs in doubt, whose last call may have done its work
        </label>
      )}
      <label>
        Runs a second
        <input
          type="number"
          min={1}
          max={100}
          required
          value={Number.isNaN(rate) ? '' : rate}
          onChange={({ currentTarget }) => setRate(currentTarget.valueAsNumber)}
        />
      </label>
    </ActionButton>
  )
}

interface CountProps {
  readonly action: BulkAction
  readonly scope: BulkScope
  readonly state: CountState
  readonly rate: number
  readonly onChange: (state: CountState) => void
}

function Count({ action, scope, state, rate, onChange }: CountProps) {
  useCount(action, scope, onChange)
  const { count, error } = state
  if (error !== null)
    return (
      <p className="failure" role="alert">
        The runs cannot be counted: <Outside text={error.message} />
        <ProblemHelp error={error} />
      </p>
    )
  return (
    <output className="counted">
      {count === null || count.Status === 'Running' ? (
        `The coordinator counts the runs… ${count?.Done ?? 0}`
      ) : count.Status !== 'Completed' ? (
        'The count was stopped.'
      ) : (
        <>
          <strong>{counted(count.Done, 'run')}</strong> can be changed.
          {count.Skipped > 0 &&
            ` ${counted(count.Skipped, 'more matches, but its state does not allow it: it is', 'more match, but their state does not allow it: they are')} left alone.`}
          {count.Failed > 0 &&
            ` ${counted(count.Failed, 'is', 'are')} not found or may not be changed.`}
          {count.Done > 0 &&
            rate >= 1 &&
            ` This takes about ${duration(Math.ceil(count.Done / rate))}.`}
          {action === 'take-back' && count.Done > 0 && (
            <>
              {' '}
              <Link to={bulkPage(count.ID)}>What would become of each object</Link>
            </>
          )}
        </>
      )}
    </output>
  )
}
