import type { ServerResponse } from 'node:http'
import { once } from 'node:events'
import type { AccessKeys } from '@integration-host/shared/access/access-keys'
import type { Caller } from '@integration-host/shared/access/caller'
import { Time } from '@integration-host/shared/contracts/run-filter'
import { AttemptView, ItemView } from '@integration-host/shared/contracts/transaction'
import { IntegrationError } from '@integration-host/shared/errors'
import { callerOf, needs } from '@integration-host/shared/http/access'
import { rawResponse } from '@integration-host/shared/http/http-server'
import { onlyKnownQuery } from '@integration-host/shared/http/known-query'
import { problemResponses, validate } from '@integration-host/shared/http/service-app'
import type { Logger } from '@integration-host/shared/observability/logger'
import { Hono } from 'hono'
import { describeRoute, resolver } from 'hono-openapi'
import { z } from 'zod'
import { type EndPosition, FIRST_END } from '../transaction/retention.ts'
import type { ExportedRun } from '../transaction/run-export.ts'
import type { TransactionSource } from '../transaction/transaction-source.ts'
import { RunResponse } from './contracts.ts'
import { CursorParam, type SealedCursors } from './sealed-cursors.ts'

export interface ExportRouteDeps {
  readonly source: TransactionSource
  readonly keys: Pick<AccessKeys, 'identify'>
  readonly logger: Logger
  /** Ends the exports in progress, for which the server would wait otherwise. */
  readonly shutdown: AbortSignal
  readonly cursors: SealedCursors
}

const ExportQuery = z.object({
  process: z.string().optional(),
  since: Time.optional(),
  until: Time.optional(),
  cursor: CursorParam.optional(),
})

/** Where an export continues: in this process, behind this run. The end stays that of the first request. */
const Cursor = z.object({
  until: Time,
  process: z.string(),
  after: z.object({
    completedAt: z.string(),
    transactionId: z.string(),
    replayId: z.int(),
  }) satisfies z.ZodType<EndPosition>,
})
type Cursor = z.output<typeof Cursor>

/** A line of the export: a run, or a line with `next_cursor`. */
const ExportLine = z.union([
  RunResponse.extend({ Items: z.array(ItemView), Attempts: z.array(AttemptView) }),
  z.object({ next_cursor: z.string().nullable(), Runs: z.int(), Until: z.iso.datetime() }),
])

/** A run may have several megabytes, and a page is in memory at once. */
const PAGE = 25
const RUNS_PER_CURSOR = 1_000
const MAX_EXPORTS = 4
/** A client that reads nothing for this long is cut off. */
const MAX_UNREAD_MS = 60_000

/**
 * `GET /transactions/export` streams the finished runs that the key may read as NDJSON: process by process, each in the
 * order in which its runs ended. After every 1,000 runs, and at the end, a line has `next_cursor`; it is null in the
 * last line. An export that breaks off continues with `cursor` behind the last such line. The next export begins with
 * the `Until` of this one as `since`.
 */
export function exportRoutes({ source, keys, logger, shutdown, cursors }: ExportRouteDeps) {
  let open = 0

  async function* lines(
    { process, since }: z.output<typeof ExportQuery>,
    cursor: Cursor | null,
    until: string,
    mayRead: (name: string, realm: string | null) => boolean,
  ): AsyncGenerator<string> {
    const all = process === undefined ? await source.storedProcesses() : [process]
    const names = all.toSorted().filter((name) => name >= (cursor?.process ?? ''))
    const cursorLine = (next: string | null): string =>
      `${JSON.stringify({ next_cursor: next, Runs: count, Until: until })}\n`
    let [count, uncounted] = [0, 0]
    for (const name of names) {
      let after: EndPosition | null = name === cursor?.process ? cursor.after : FIRST_END
      while (after !== null) {
        const page = await source.exportPage(
          { process: name, since: since ?? null, until },
          after,
          PAGE,
        )
        const mine = page.runs.filter(({ run }) => mayRead(name, run.Realm))
        count += mine.length
        uncounted += page.runs.length
        yield mine.map(lineOf).join('')
        after = page.next
        if (after !== null && uncounted >= RUNS_PER_CURSOR) {
          uncounted = 0
          yield cursorLine(cursors.seal('export', { until, process: name, after }))
        }
      }
    }
    yield cursorLine(null)
  }

  async function write(outgoing: ServerResponse, parts: AsyncIterator<string>, first: string) {
    open += 1
    const closed = new AbortController()
    const stopped = AbortSignal.any([closed.signal, shutdown])
    outgoing.once('close', () => closed.abort())
    outgoing.on('error', () => {}) // `close` follows
    try {
      for (let part = first; ;) {
        if (part !== '' && !outgoing.write(part)) {
          const unread = setTimeout(() => outgoing.destroy(), MAX_UNREAD_MS)
          await once(outgoing, 'drain', { signal: stopped }).finally(() => clearTimeout(unread))
        }
        stopped.throwIfAborted()
        const next = await parts.next()
        if (next.done === true) break
        part = next.value
      }
      outgoing.end()
    } catch (error) {
      // Without the last line and the end of the chunked body, the client knows that the export is not complete.
      if (!stopped.aborted) logger.warn({ err: error }, 'export of runs broke off')
      outgoing.destroy()
    } finally {
      open -= 1
    }
  }

  return new Hono().get(
    '/export',
    needs('transactions:read'),
    describeRoute({
      tags: ['transactions'],
      summary: 'Finished runs with items and attempts as NDJSON, in the order in which they ended',
      description:
        'Process by process. Lines with `next_cursor` follow every 1,000 runs and the last run, where it is null. Runs of the last minute are left out; `Until` of the last line is `since` of the next export.',
      responses: {
        200: {
          description: 'a run on each line',
          content: { 'application/x-ndjson': { schema: resolver(ExportLine) } },
        },
        ...problemResponses({
          400: 'invalid',
          503: `${MAX_EXPORTS} exports of this replica are running already, or the store is unavailable`,
        }),
      },
    }),
    onlyKnownQuery(...Object.keys(ExportQuery.shape)),
    validate('query', ExportQuery),
    async (c) => {
      const query = c.req.valid('query')
      const { process } = query
      const cursor =
        query.cursor === undefined ? null : cursors.open('export', query.cursor, Cursor)
      const caller = callerOf(c)
      if (process !== undefined) caller.requireProcess(process)
      if (process !== undefined && cursor !== null && cursor.process !== process)
        throw new IntegrationError('invalid_request', 'cursor: belongs to another export')
      if (open >= MAX_EXPORTS)
        throw new IntegrationError(
          'too_many_exports',
          `${MAX_EXPORTS} exports of this replica are running already`,
          { retryAfterSeconds: 30 },
        )
      const until = cursor?.until ?? (await source.exportEnd(query.until ?? null))
      // The key is checked for each page, because an export may last longer than the key is valid.
      const authorization = c.req.header('Authorization')
      const reader = (): Caller => {
        const current = keys.identify(authorization)
        if (current === null) throw new IntegrationError('unauthorized', 'the key is not valid')
        current.requireScope('transactions:read')
        return current
      }
      const parts = lines(query, cursor, until, (name, realm) => {
        const current = reader()
        return current.mayUseProcess(name) && current.mayUse(realm)
      })
      // Before the head of the response is sent: a store that is unavailable is then reported as a problem.
      const first = await parts.next()
      return rawResponse(
        c,
        { 'Content-Type': 'application/x-ndjson', 'Cache-Control': 'no-store' },
        (outgoing) => () => void write(outgoing, parts, first.done === true ? '' : first.value),
      )
    },
  )
}

const lineOf = ({ run, items, attempts }: ExportedRun): string =>
  `${JSON.stringify({ ...run, Items: items, Attempts: attempts })}\n`
