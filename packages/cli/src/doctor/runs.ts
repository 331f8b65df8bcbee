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
import { pagesOf, queryOf } from '../paging.ts'
import { NoData, orNoData, type Reader } from './query.ts'
import { firstOf, mostFrequent, resultsOf } from './results.ts'

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
 * @throws {NoData} the runs cannot be read.
 */
export async function examineRuns(reader: Reader, now: number): Promise<readonly CheckResult[]> {
  const since = new Date(now - DAY_MS).toISOString()
  const [failed, waiting, doubtful] = await Promise.all([
    find(reader, { status: FAILED, since }),
    find(reader, { status: ['Waiting'] }),
    find(reader, { inDoubt: true, status: [...FAILED, 'Retrying', 'Waiting', 'Undoing'] }),
  ])
  const reasonOf = ({ WaitingFor }: Run) => readWaitingFor(WaitingFor)
  // Only runs that wait for a credential are reported. The others continue without an operator.
  const forCredential = only(
    waiting,
    (run) => (reasonOf(run)?.kind ?? 'credential') === 'credential',
  )
  // Runs whose company has closed its books wait until an operator retries them.
  const closed = only(waiting, (run) => reasonOf(run)?.kind === 'books')
  const failedInDoubt = only(doubtful, ({ Status }) => FAILED.includes(Status))
  const activeInDoubt = only(doubtful, ({ Status }) => !FAILED.includes(Status))
  const results = resultsOf(
    failed.runs.length > 0 &&
      problem(
        'failed runs',
        `${amount(failed)} in the last day: ${grouped(failed, (run) => `${providerErrorOf(run) ?? run.ErrorClass ?? 'no class'} at ${run.Process} ${run.StepName}`)}`,
        remedyFor('RunsFailed', `integration-host transactions show ${idOf(failed)}`),
      ),
    forCredential.runs.length > 0 &&
      problem(
        'waiting runs',
        `${amount(forCredential)} for a credential: ${grouped(forCredential, ({ WaitingFor }) => WaitingFor ?? 'unknown')}`,
        remedyFor(
          'RunsWaiting',
          `integration-host credentials show ${forCredential.runs[0]?.WaitingFor ?? ''}`,
        ),
      ),
    closed.runs.length > 0 &&
      problem(
        'closed books',
        `${amount(closed)} because of closed books: ${grouped(closed, (run) => reasonOf(run)?.name ?? '')}`,
        remedyFor('RunsBooksClosed', `integration-host transactions retry ${idOf(closed)}`),
      ),
    failedInDoubt.runs.length > 0 &&
      problem(
        'in doubt',
        `${amount(failedInDoubt)} have failed, but may have done the work of their step`,
        remedyFor('RunsInDoubt', `integration-host transactions show ${idOf(failedInDoubt)}`),
      ),
    activeInDoubt.runs.length > 0 &&
      warning(
        'in doubt',
        `${amount(activeInDoubt)} may have done the work of their step, and are tried again`,
        'Nothing needs to be done if the target recognises the idempotency key (docs/runbook.md#a-run-is-in-doubt).',
      ),
    await checkEntries(reader, now),
  )
  return results.length === 0
    ? [ok('runs', 'no run has failed in the last day, waits for a credential, or is in doubt')]
    : results
}

/** The statuses of runs that have failed, forward or while they were undone. */
const FAILED: HeaderStatus[] = ['Failed', 'UndoFailed']

/** @throws {NoData} the runs cannot be read, or none was found on the first pages. */
async function find(reader: Reader, filter: RunFilter): Promise<Found> {
  const list = { path: '/transactions', query: queryOf(filter), schema: Page }
  const pages = pagesOf(reader, { ...list, limit: MAX_READ, mostPerPage: MAX_READ })
  const runs: Run[] = []
  for (let page = 0; page < MAX_PAGES; page += 1) {
    const next = await pages.next()
    if (next.done) return { runs, hasMore: next.value !== null }
    runs.push(...next.value)
  }
  if (runs.length > 0) return { runs, hasMore: true }
  const remedy = 'Use transactions list with a filter.'
  throw new NoData(skipped('runs', 'none was found on the first 20 pages', remedy))
}

const only = ({ runs, hasMore }: Found, isWanted: (run: Run) => boolean): Found => ({
  runs: runs.filter(isWanted),
  hasMore,
})

const Entries = z.object({
  items: z.array(z.object({ Entity: z.string(), CheckedAt: z.string().nullable() })),
  next_cursor: z.string().nullable(),
})
const OUTSIDE = ['ChangedOutside', 'Voided', 'Deleted', 'Missing'] as const

/** Reports the objects that runs have written, and that were found changed or gone in the last day. */
async function checkEntries(reader: Reader, now: number): Promise<CheckResult[]> {
  const results: CheckResult[] = []
  for (const state of OUTSIDE) {
    const found = await orNoData(reader.get(`/entries?state=${state}&limit=200`, Entries))
    if (found instanceof NoData) return [] // a coordinator of the release before has no entries
    const fresh = found.items.filter(({ CheckedAt }) => Date.parse(CheckedAt ?? '') >= now - DAY_MS)
    if (fresh.length > 0)
      results.push(
        problem(
          'entries',
          `${fresh.length}${found.next_cursor === null ? '' : ' or more'} objects that runs have written are ${state} since the last day`,
          remedyFor('EntriesOutside', `integration-host entries list --state ${state}`),
        ),
      )
  }
  return results
}

const amount = ({ runs, hasMore }: Found): string => `${runs.length}${hasMore ? ' or more' : ''}`

const idOf = ({ runs: [first] }: Found): string =>
  `${first?.TransactionID ?? ''} --process ${first?.Process ?? ''}`

/** Returns the texts that `textOf` returns for the runs, each with the number of its runs, the most frequent first. */
const grouped = ({ runs }: Found, textOf: (run: Run) => string): string =>
  firstOf(
    mostFrequent(runs.map(textOf)).map(([text, count]) => `${count} × ${text}`),
    MAX_NAMED,
  )
