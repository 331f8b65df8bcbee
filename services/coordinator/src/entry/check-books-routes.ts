import { BooksQuery, BooksView } from '@integration-host/shared/contracts/company'
import { Realm } from '@integration-host/shared/contracts/realm'
import type { RunFilter } from '@integration-host/shared/contracts/run-filter'
import { IntegrationError } from '@integration-host/shared/errors'
import { callerOf, needs } from '@integration-host/shared/http/access'
import { knownQuery, responses, validate } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { RunPosition } from '../run/run-search.ts'
import { activeStatuses } from '../run/status.ts'
import type { TransactionSource } from '../run/transaction-source.ts'
import type { ProcessDefinition } from '../step/definition.ts'
import { entryCountsOf, readiness } from './check-books.ts'

export interface CheckBooksRouteDeps {
  readonly source: TransactionSource
  readonly processes: ReadonlyMap<string, ProcessDefinition>
}

const PAGE = 1_000
const MAX_PAGES = 10

/** `GET /realms/{realm}/books`: whether the work of a period is done, and is in the books as the runs have written it. */
export function checkBooksRoutes({ source, processes }: CheckBooksRouteDeps) {
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
        source.countEntries(realm, since, until),
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
