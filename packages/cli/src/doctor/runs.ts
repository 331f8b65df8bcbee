/** Reports the runs that an operator must act on: failed, waiting for a credential, or in doubt. */
import { readWaitingFor } from '@integration-host/shared/contracts/run'
import { remedyFor } from '@integration-host/shared/conditions'
import type { RunFilter } from '@integration-host/shared/contracts/run-filter'
import { type HeaderStatus, HeaderView } from '@integration-host/shared/contracts/transaction'
import {
  type CheckResult,
  ok,
  problem,
  skipped,
  warning,
} from '@integration-host/shared/observability/checks'
import { providerErrorOf } from '@integration-host/shared/provider-profile/provider-fault'
import { z } from 'zod'
import { queryOf } from '../paging.ts'
import { mostFrequent } from './most-frequent.ts'
import { query, type QueryResult, type Service } from './query.ts'

const Page = z.object({
  items: z.array(
    HeaderView.pick({ Process: true, TransactionID: true, Status: true, StepName: true }).extend({
      ErrorClass: z.string().nullable(),
      LastError: z.string().nullable(),
      WaitingFor: z.string().nullable(),
    }),
  ),
  next_cursor: z.string().nullable(),
})
type Run = z.output<typeof Page>['items'][number]

/**
 * The maximum number of runs that are requested of each kind. This maximum is small, because the response contains the
 * initial data of every run.
 */
const MAX_READ = 25
/** The maximum number of requests. Without this limit, many empty pages could cause many requests. */
const MAX_PAGES = 20
const DAY_MS = 86_400_000
/** The maximum number of different reasons or credentials that are named. */
const MAX_NAMED = 5

interface Found {
  readonly runs: readonly Run[]
  readonly hasMore: boolean
}

/**
 * Reports the runs that have failed in the last day, that wait for a credential, and that are in doubt. Older failures
 * are not reported, because a run that is never resumed would then be reported forever.
 *
 * @param now milliseconds since the epoch
 */
export async function examineRuns(
  service: Service,
  now: number,
  signal: AbortSignal,
): Promise<readonly CheckResult[]> {
  const since = new Date(now - DAY_MS).toISOString()
  const [failed, waiting, doubtful] = await Promise.all([
    find(service, { status: FAILED, since }, signal),
    find(service, { status: ['Waiting'] }, signal),
    find(service, { inDoubt: true, status: [...FAILED, 'Retrying', 'Waiting', 'Undoing'] }, signal),
  ])
  if ('result' in failed) return [failed.result]
  if ('result' in waiting) return [waiting.result]
  if ('result' in doubtful) return [doubtful.result]
  const results = [
    ...checkFailed(failed.data),
    ...checkWaiting(waiting.data),
    ...checkClosed(waiting.data),
    ...checkInDoubt(doubtful.data),
    ...(await checkEntries(service, now, signal)),
  ]
  return results.length === 0
    ? [ok('runs', 'no run has failed in the last day, waits for a credential, or is in doubt')]
    : results
}

async function find(
  service: Service,
  filter: RunFilter,
  signal: AbortSignal,
): Promise<QueryResult<Found>> {
  const search = queryOf(filter)
  const runs: Run[] = []
  for (let page = 0; page < MAX_PAGES; page += 1) {
    search.set('limit', String(MAX_READ - runs.length))
    const response = await query(service, `/transactions?${search.toString()}`, Page, signal)
    if (!('data' in response)) return response
    const { items, next_cursor: next } = response.data
    runs.push(...items)
    if (next === null) return { data: { runs, hasMore: false } }
    if (runs.length >= MAX_READ) return { data: { runs, hasMore: true } }
    search.set('cursor', next)
  }
  return runs.length > 0
    ? { data: { runs, hasMore: true } }
    : {
        result: skipped(
          'runs',
          'none was found on the first 20 pages',
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
          `${amount(failed)} in the last day: ${grouped(failed.runs, (run) => `${providerErrorOf(run) ?? run.ErrorClass ?? 'no class'} at ${run.Process} ${run.StepName}`)}`,
          remedyFor('RunsFailed', `integration-host transactions show ${idOf(failed)}`),
        ),
      ]

/** Only runs that wait for a credential are reported. The others continue without an operator. */
const checkWaiting = ({ runs, hasMore }: Found): CheckResult[] => {
  const waiting = {
    runs: runs.filter(
      ({ WaitingFor }) => (readWaitingFor(WaitingFor)?.kind ?? 'credential') === 'credential',
    ),
    hasMore,
  }
  return waiting.runs.length === 0
    ? []
    : [
        problem(
          'waiting runs',
          `${amount(waiting)} for a credential: ${grouped(waiting.runs, ({ WaitingFor }) => WaitingFor ?? 'unknown')}`,
          remedyFor(
            'RunsWaiting',
            `integration-host credentials show ${waiting.runs[0]?.WaitingFor ?? ''}`,
          ),
        ),
      ]
}

/** Runs whose company has closed its books wait until an operator retries them. */
const checkClosed = ({ runs, hasMore }: Found): CheckResult[] => {
  const closed = {
    runs: runs.filter(({ WaitingFor }) => readWaitingFor(WaitingFor)?.kind === 'books'),
    hasMore,
  }
  return closed.runs.length === 0
    ? []
    : [
        problem(
          'closed books',
          `${amount(closed)} because of closed books: ${grouped(closed.runs, ({ WaitingFor }) => readWaitingFor(WaitingFor)?.name ?? '')}`,
          remedyFor('RunsBooksClosed', `integration-host transactions retry ${idOf(closed)}`),
        ),
      ]
}

const Entries = z.object({
  items: z.array(z.object({ Entity: z.string(), CheckedAt: z.string().nullable() })),
  next_cursor: z.string().nullable(),
})
const OUTSIDE = ['ChangedOutside', 'Voided', 'Deleted', 'Missing'] as const

/** Reports the objects that runs have written, and that were found changed or gone in the last day. */
async function checkEntries(
  service: Service,
  now: number,
  signal: AbortSignal,
): Promise<CheckResult[]> {
  const results: CheckResult[] = []
  for (const state of OUTSIDE) {
    const found = await query(service, `/entries?state=${state}&limit=200`, Entries, signal)
    // A coordinator of the release before has no entries.
    if (!('data' in found)) return []
    const { items, next_cursor: next } = found.data
    const fresh = items.filter(({ CheckedAt }) => Date.parse(CheckedAt ?? '') >= now - DAY_MS)
    if (fresh.length > 0)
      results.push(
        problem(
          'entries',
          `${fresh.length}${next === null ? '' : ' or more'} objects that runs have written are ${state} since the last day`,
          remedyFor('EntriesOutside', `integration-host entries list --state ${state}`),
        ),
      )
  }
  return results
}

/** The statuses of runs that have failed, forward or while they were undone. */
const FAILED: HeaderStatus[] = ['Failed', 'UndoFailed']

function checkInDoubt({ runs, hasMore }: Found): CheckResult[] {
  const failed = { runs: runs.filter(({ Status }) => FAILED.includes(Status)), hasMore }
  const active = { runs: runs.filter(({ Status }) => !FAILED.includes(Status)), hasMore }
  return [
    ...(failed.runs.length === 0
      ? []
      : [
          problem(
            'in doubt',
            `${amount(failed)} have failed, but may have done the work of their step`,
            remedyFor('RunsInDoubt', `integration-host transactions show ${idOf(failed)}`),
          ),
        ]),
    ...(active.runs.length === 0
      ? []
      : [
          warning(
            'in doubt',
            `${amount(active)} may have done the work of their step, and are tried again`,
            'Nothing needs to be done if the target recognises the idempotency key (docs/runbook.md#a-run-is-in-doubt).',
          ),
        ]),
  ]
}

const amount = ({ runs, hasMore }: Found): string => `${runs.length}${hasMore ? ' or more' : ''}`

const idOf = ({ runs }: Found): string =>
  `${runs[0]?.TransactionID ?? ''} --process ${runs[0]?.Process ?? ''}`

/**
 * Groups the runs by the text that `textOf` returns for them. Returns each text with the number of its runs, the most
 * frequent text first.
 */
function grouped(runs: readonly Run[], textOf: (run: Run) => string): string {
  const texts = mostFrequent(runs.map(textOf))
  const named = texts.slice(0, MAX_NAMED).map(([text, count]) => `${count} × ${text}`)
  return [...named, ...(texts.length > MAX_NAMED ? ['…'] : [])].join(', ')
}
