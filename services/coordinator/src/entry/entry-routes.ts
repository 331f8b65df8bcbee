import { callerOf, needs } from '@integration-host/shared/http/request'
import { knownQuery, responses, validate } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import { pageLimit } from '../routes/contracts.ts'
import { CursorParam } from '../routes/sealed-cursors.ts'
import { readVisible } from '../routes/visible-page.ts'
import {
  countEntries,
  type EntryCount,
  type EntryPosition,
  type EntryRow,
  readEntries,
} from './book-entry.ts'
import { Realm } from '@integration-host/shared/contracts/realm'
import type { RunFilter } from '@integration-host/shared/contracts/run-filter'
import { IntegrationError } from '@integration-host/shared/errors'
import type { RunPosition } from '../run/run-search.ts'
import { activeStatuses } from '../run/status.ts'
import { providerEntities } from '@integration-host/shared/contracts/provider-event'
import {
  BooksQuery,
  BooksView,
  EntryFilter,
  EntryPage,
  type EntryView,
} from '@integration-host/shared/contracts/company'
import type { AppDeps } from '../core.ts'

const EntriesQuery = z.strictObject({
  ...EntryFilter.shape,
  limit: pageLimit(500),
  cursor: CursorParam.optional().meta({
    description: 'next_cursor of the previous page, which has the same filter',
  }),
})
const LIST = 'entries'
const Position = z.tuple([z.string(), z.string()]) satisfies z.ZodType<EntryPosition>

/** `GET /entries`: what runs have written to the books of companies, newest first. */
export function entryRoutes({ source, cursors }: AppDeps) {
  return new Hono().get(
    '/',
    needs('transactions:read'),
    describeRoute({
      operationId: 'listEntries',
      tags: ['entries'],
      summary: 'Which object in the books of a company was written by which run; newest first',
      description:
        'A page may have fewer entries than `limit`; there are more as long as `next_cursor` is not null.',
      responses: responses(EntryPage),
    }),
    knownQuery(EntriesQuery),
    async (c) => {
      const { limit, cursor, ...filter } = c.req.valid('query')
      const caller = callerOf(c)
      if (filter.process !== undefined) caller.requireProcess(filter.process)
      if (filter.realm !== undefined) caller.requireRealm(filter.realm)
      const { items, next } = await readVisible(
        ({ before: after, limit: size }) => readEntries(source, filter, { after, limit: size }),
        { limit, before: cursor === undefined ? undefined : cursors.open(LIST, cursor, Position) },
        (entry) => caller.mayUseProcess(entry.Process) && caller.mayUse(entry.Realm),
        ({ RecordedAt, EntryID }): EntryPosition => [RecordedAt, EntryID],
      )
      return c.json({
        items: items.map(viewOf),
        next_cursor: next === null ? null : cursors.seal(LIST, next),
      })
    },
  )
}

const viewOf = ({ FieldsKey: _key, ...entry }: EntryRow): EntryView => entry

const PAGE = 1_000
const MAX_PAGES = 10

/** `GET /realms/{realm}/books`: whether the work of a period is done, and is in the books as the runs have written it. */
export function checkBooksRoutes({ source, processes }: AppDeps) {
  const isBuiltIn = (process: string): boolean => processes.get(process)?.runBuiltIn !== undefined

  /** Counts the runs of a filter, except those of built-in processes. */
  async function count(
    filter: RunFilter,
    visible: { realms: readonly string[]; processes: readonly string[] },
  ): Promise<{ readonly runs: number; readonly isLowerBound: boolean }> {
    let runs = 0
    let after: RunPosition | null = null
    for (let page = 0; page < MAX_PAGES; page += 1) {
      const search = { process: null, filter, order: 'created', visible, after } as const
      const found = await source.search({ ...search, limit: PAGE })
      runs += found.runs.filter(({ Process }) => !isBuiltIn(Process)).length
      after = found.next
      if (after === null) return { runs, isLowerBound: false }
    }
    return { runs, isLowerBound: true }
  }

  return new Hono().get(
    '/:realm/books',
    needs('transactions:read'),
    describeRoute({
      operationId: 'checkBooks',
      tags: ['entries'],
      summary:
        'Whether the work of a period is done, and is in the books as the runs have written it',
      responses: responses(BooksView, 'invalid_request'),
    }),
    validate('param', z.object({ realm: Realm })),
    knownQuery(BooksQuery),
    async (c) => {
      const { realm } = c.req.valid('param')
      const { since, until = new Date().toISOString() } = c.req.valid('query')
      if (Date.parse(until) <= Date.parse(since))
        throw new IntegrationError('invalid_request', 'until must be after since')
      const caller = callerOf(c)
      caller.requireRealm(realm)
      const visible = { realms: caller.realms, processes: caller.processes }
      const ofPeriod = { realm: [realm], from: since, until }
      const [unfinished, failed, inDoubt, entries] = await Promise.all([
        count({ ...ofPeriod, status: [...activeStatuses] }, visible),
        count({ ...ofPeriod, status: ['Failed', 'UndoFailed'] }, visible),
        count(
          { ...ofPeriod, inDoubt: true, status: [...activeStatuses, 'Failed', 'UndoFailed'] },
          visible,
        ),
        countEntries(source, { realm, since, until }),
      ])
      const counts = {
        Runs: {
          Unfinished: unfinished.runs,
          Failed: failed.runs,
          InDoubt: inDoubt.runs,
          IsLowerBound: [unfinished, failed, inDoubt].some(({ isLowerBound }) => isLowerBound),
        },
        Entries: entryCountsOf(entries),
      }
      const view: BooksView = {
        Realm: realm,
        Since: new Date(since).toISOString(),
        Until: new Date(until).toISOString(),
        ...readiness(counts),
        ...counts,
      }
      return c.json(view)
    },
  )
}

type Counts = Pick<BooksView, 'Runs' | 'Entries'>

/** Counts entries by what is known of their objects. */
function entryCountsOf(counts: readonly EntryCount[]): BooksView['Entries'] {
  const isInFeed = (entity: string): boolean =>
    (providerEntities as readonly string[]).includes(entity)
  const total = (matches: (count: EntryCount) => boolean): number =>
    counts.filter(matches).reduce((sum, { Count }) => sum + Count, 0)
  const of = (state: string): number => total(({ State }) => State === state)
  return {
    Verified: of('Verified'),
    Unverified: total(({ State, Entity }) => State === 'Recorded' && isInFeed(Entity)),
    Unprovable:
      of('Unproven') + total(({ State, Entity }) => State === 'Recorded' && !isInFeed(Entity)),
    Changed: of('ChangedOutside'),
    Voided: of('Voided'),
    Deleted: of('Deleted'),
    Missing: of('Missing'),
  }
}

/** Returns whether nothing is left to do or to look at, and says it in a sentence. */
function readiness({ Runs, Entries }: Counts): Pick<BooksView, 'Ready' | 'Sentence'> {
  const left = [
    counted(Runs.Unfinished, 'run is', 'runs are', 'unfinished'),
    counted(Runs.Failed, 'run has', 'runs have', 'failed'),
    counted(Runs.InDoubt, 'run is', 'runs are', 'in doubt'),
    counted(Entries.Unverified, 'entry is', 'entries are', 'not verified yet'),
    counted(Entries.Changed, 'entry was', 'entries were', 'changed'),
    counted(Entries.Voided, 'entry was', 'entries were', 'voided'),
    counted(Entries.Deleted, 'entry was', 'entries were', 'deleted'),
    counted(Entries.Missing, 'entry is', 'entries are', 'missing'),
  ].filter((text) => text !== '')
  const verified =
    counted(Entries.Verified, 'entry is', 'entries are', 'verified') || 'no entry is verified'
  return left.length === 0
    ? { Ready: true, Sentence: `ready to close: ${verified}` }
    : { Ready: false, Sentence: `not ready to close: ${left.join(', ')}; ${verified}` }
}

const counted = (count: number, one: string, several: string, what: string): string =>
  count === 0 ? '' : `${count} ${count === 1 ? one : several} ${what}`
