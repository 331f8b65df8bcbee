/** Looks for the runs that need a person: failed, waiting for a credential, or in doubt. */
import { HeaderView } from '@integration-host/shared/contracts/transaction'
import {
  type CheckResult,
  ok,
  problem,
  skipped,
  warning,
} from '@integration-host/shared/observability/checks/check-result'
import { z } from 'zod'
import { query, type Service } from './query.ts'

const Page = z.object({
  items: z.array(
    HeaderView.pick({ Process: true, TransactionID: true, Status: true, StepName: true }).extend({
      ErrorClass: z.string().nullable(),
      WaitingFor: z.string().nullable(),
    }),
  ),
  next_cursor: z.string().nullable(),
})
type Run = z.output<typeof Page>['items'][number]

/** This many runs are read of each kind. Their initial data comes with them, so the number is small. */
const MAX_READ = 25
/** A page may be empty although more follow. */
const MAX_PAGES = 20
const DAY_MS = 86_400_000
/** This many different reasons or credentials are named. */
const MAX_NAMED = 5

interface Found {
  readonly runs: readonly Run[]
  readonly hasMore: boolean
}

/**
 * Reports the runs that have failed in the last day, that wait for a credential, and that are in doubt. Older failures
 * are not reported: whoever has decided to leave them would get a problem for ever.
 */
export async function examineRuns(
  service: Service,
  signal: AbortSignal,
): Promise<readonly CheckResult[]> {
  const since = new Date(Date.now() - DAY_MS).toISOString()
  const found = await Promise.all([
    find(service, { status: ['Failed'], since: [since] }, signal),
    find(service, { status: ['Waiting'] }, signal),
    find(service, { inDoubt: ['true'], status: ['Failed', 'Retrying', 'Waiting'] }, signal),
  ])
  const unread = found.find((one) => 'result' in one)
  if (unread !== undefined && 'result' in unread) return [unread.result]
  const [failed, waiting, doubtful] = found as [Found, Found, Found]
  const results = [...checkFailed(failed), ...checkWaiting(waiting), ...checkInDoubt(doubtful)]
  return results.length === 0
    ? [ok('runs', 'none failed in the last day, none waits for a credential, none is in doubt')]
    : results
}

async function find(
  service: Service,
  filter: Readonly<Record<string, readonly string[]>>,
  signal: AbortSignal,
): Promise<Found | { readonly result: CheckResult }> {
  const search = new URLSearchParams(
    Object.entries(filter).flatMap(([name, values]) =>
      values.map((value): [string, string] => [name, value]),
    ),
  )
  const runs: Run[] = []
  for (let page = 0; page < MAX_PAGES; page += 1) {
    search.set('limit', String(MAX_READ - runs.length))
    const response = await query(service, `/transactions?${search.toString()}`, Page, signal)
    if (!('data' in response)) return response
    const { items, next_cursor: next } = response.data
    runs.push(...items)
    if (next === null) return { runs, hasMore: false }
    if (runs.length >= MAX_READ) return { runs, hasMore: true }
    search.set('cursor', next)
  }
  return runs.length > 0
    ? { runs, hasMore: true }
    : {
        result: skipped(
          'runs',
          'not found within 20 pages',
          'Use transactions list with a filter.',
        ),
      }
}

const checkFailed = (failed: Found): CheckResult[] =>
  failed.runs.length === 0
    ? []
    : [
        problem(
          'failed runs',
          `${amount(failed)} in the last day: ${grouped(failed.runs, ({ Process, StepName, ErrorClass }) => `${ErrorClass ?? 'no class'} at ${Process} ${StepName}`)}`,
          `integration-host transactions show ${idOf(failed)}; fix the cause, then resume them (docs/runbook.md#runsfailed)`,
        ),
      ]

const checkWaiting = (waiting: Found): CheckResult[] =>
  waiting.runs.length === 0
    ? []
    : [
        problem(
          'waiting runs',
          `${amount(waiting)} for a credential: ${grouped(waiting.runs, ({ WaitingFor }) => WaitingFor ?? 'unknown')}`,
          `integration-host credentials show ${waiting.runs[0]?.WaitingFor ?? ''} (docs/runbook.md#runswaiting)`,
        ),
      ]

function checkInDoubt({ runs, hasMore }: Found): CheckResult[] {
  const failed = { runs: runs.filter(({ Status }) => Status === 'Failed'), hasMore }
  const active = { runs: runs.filter(({ Status }) => Status !== 'Failed'), hasMore }
  return [
    ...(failed.runs.length === 0
      ? []
      : [
          problem(
            'in doubt',
            `${amount(failed)} have failed, and may have done the work of their step`,
            `Check at the target what ${failed.runs[0]?.TransactionID ?? ''} did, then integration-host transactions settle (docs/runbook.md#a-run-is-in-doubt)`,
          ),
        ]),
    ...(active.runs.length === 0
      ? []
      : [
          warning(
            'in doubt',
            `${amount(active)} may have done the work of their step, and are tried again`,
            'Nothing, if the target recognises the idempotency key; docs/runbook.md#a-run-is-in-doubt',
          ),
        ]),
  ]
}

const amount = ({ runs, hasMore }: Found): string => `${runs.length}${hasMore ? ' or more' : ''}`

const idOf = ({ runs }: Found): string =>
  `${runs[0]?.TransactionID ?? ''} --process ${runs[0]?.Process ?? ''}`

/** Returns how many runs have each text, the most frequent first. */
function grouped(runs: readonly Run[], textOf: (run: Run) => string): string {
  const counts = new Map<string, number>()
  for (const run of runs) counts.set(textOf(run), (counts.get(textOf(run)) ?? 0) + 1)
  const sorted = [...counts].toSorted(([, a], [, b]) => b - a)
  const named = sorted.slice(0, MAX_NAMED).map(([text, count]) => `${count} ${text}`)
  return [...named, ...(sorted.length > MAX_NAMED ? ['…'] : [])].join(', ')
}
