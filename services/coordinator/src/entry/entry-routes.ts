import { EntryFilter, EntryPage } from '@integration-host/shared/contracts/company'
import { callerOf, needs } from '@integration-host/shared/http/access'
import { knownQuery, responses } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import { pageLimit } from '../routes/contracts.ts'
import { CursorParam, type SealedCursors } from '../routes/sealed-cursors.ts'
import { readVisible } from '../routes/visible-page.ts'
import type { TransactionSource } from '../run/transaction-source.ts'
import { type EntryPosition, readEntries, viewOf } from './read-entries.ts'

export interface EntryRouteDeps {
  readonly source: TransactionSource
  readonly cursors: SealedCursors
}

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
export function entryRoutes({ source, cursors }: EntryRouteDeps) {
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
        ({ Process, Realm }) => caller.mayUseProcess(Process) && caller.mayUse(Realm),
        ({ RecordedAt, EntryID }): EntryPosition => [RecordedAt, EntryID],
      )
      return c.json({
        items: items.map(viewOf),
        next_cursor: next === null ? null : cursors.seal(LIST, next),
      })
    },
  )
}
