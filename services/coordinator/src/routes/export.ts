import type { ServerResponse } from 'node:http'
import { once } from 'node:events'
import { type Caller, type PlaceLimits, Places } from '@integration-host/shared/access/caller'
import { Time } from '@integration-host/shared/contracts/run-filter'
import { AttemptView, ItemView } from '@integration-host/shared/contracts/transaction'
import { RunResponse } from '@integration-host/shared/contracts/run'
import { IntegrationError } from '@integration-host/shared/errors'
import { callerOf, needs } from '@integration-host/shared/http/request'
import { rawResponse } from '@integration-host/shared/http/without-web-streams'
import { knownQuery, problems } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute, resolver } from 'hono-openapi'
import { z } from 'zod'
import { type EndPosition, FIRST_END } from '../run/retention.ts'
import { exportEnd, type ExportedRun } from '../run/run-detail.ts'
import { CursorParam } from './sealed-cursors.ts'
import type { AppDeps } from '../core.ts'

const ExportQuery = z.object({
  process: z.string().min(1).max(200).optional(),
  since: Time.optional(),
  until: Time.optional(),
  cursor: CursorParam.optional(),
})

/**
 * The position after which an export continues: the last exported run. `until` is the end of the exported period. The
 * first request of an export sets this end, and all its later requests keep it.
 */
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

/** A line of the export: a run, or a `next_cursor`. */
const ExportLine = z.union([
  RunResponse.extend({ Items: z.array(ItemView), Attempts: z.array(AttemptView) }),
  z.object({ next_cursor: z.string().nullable(), Runs: z.int(), Until: z.iso.datetime() }),
])

/**
 * The maximum number of runs in a page. It is small, because a page is held in memory and a run may have several
 * megabytes.
 */
const PAGE = 25
const RUNS_PER_CURSOR = 1_000
export const EXPORTS: PlaceLimits = { total: 4, perKey: 2 }
/** The time without reading after which a client is disconnected. */
const MAX_UNREAD_MS = 60_000

/**
 * `GET /transactions/export` streams as NDJSON the finished runs that the key may read: one process after another, and
 * each process in the order in which its runs ended. A line with `next_cursor` follows after every 1,000 runs and after
 * the last run. In the last line, `next_cursor` is null. A client continues an interrupted export by passing the last
 * `next_cursor` as `cursor`. It starts the next export by passing the `Until` of this export as `since`.
 */
export function exportRoutes(deps: AppDeps) {
  const { source, keys, logger, shutdown, cursors, recordRead } = deps
  const places = new Places(EXPORTS)

  async function* lines(
    { process, since }: z.output<typeof ExportQuery>,
    cursor: Cursor | null,
    until: string,
    currentCaller: () => Caller,
  ): AsyncGenerator<string> {
    const all = process === undefined ? [...(await source.storedProcesses()).keys()] : [process]
    const names = all.toSorted().filter((name) => name >= (cursor?.process ?? ''))
    const cursorLine = (next: string | null): string =>
      `${JSON.stringify({ next_cursor: next, Runs: count, Until: until })}\n`
    let [count, uncounted] = [0, 0]
    for (const name of names) {
      let after: EndPosition | null = name === cursor?.process ? cursor.after : FIRST_END
      while (after !== null) {
        const caller = currentCaller()
        if (!caller.mayUseProcess(name)) break
        const page = await source.exportPage(
          { process: name, since: since ?? null, until },
          after,
          PAGE,
        )
        const mine = page.runs.filter(({ run }) => caller.mayUse(run.Realm))
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
    const closed = new AbortController()
    const stopped = AbortSignal.any([closed.signal, shutdown])
    outgoing.once('close', () => closed.abort())
    outgoing.on('error', () => {}) // the event `close` follows and ends the export
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
      // The client recognizes an incomplete export by its missing last line, and by a chunked body without an end.
      if (!stopped.aborted) logger.warn({ err: error }, 'export of runs was interrupted')
      outgoing.destroy()
    }
  }

  return new Hono().get(
    '/export',
    needs('transactions:read'),
    describeRoute({
      operationId: 'exportTransactions',
      tags: ['transactions'],
      summary: 'Finished runs with items and attempts as NDJSON, in the order in which they ended',
      description:
        'Process by process. Lines with `next_cursor` follow every 1,000 runs and the last run, where it is null. Runs of the last minute are left out; `Until` of the last line is `since` of the next export.',
      responses: {
        200: {
          description: 'a run on each line',
          content: { 'application/x-ndjson': { schema: resolver(ExportLine) } },
        },
        ...problems('too_many_exports', 'store_unavailable'),
      },
    }),
    knownQuery(ExportQuery),
    async (c) => {
      const query = c.req.valid('query')
      const { process } = query
      const cursor =
        query.cursor === undefined ? null : cursors.open('export', query.cursor, Cursor)
      const caller = callerOf(c)
      if (process !== undefined) caller.requireProcess(process)
      if (process !== undefined && cursor !== null && cursor.process !== process)
        throw new IntegrationError('invalid_request', 'cursor: belongs to another export')
      const freePlace = places.take(caller)
      if (freePlace === null)
        throw new IntegrationError(
          'too_many_exports',
          `${EXPORTS.total} exports of this replica are running already, or ${EXPORTS.perKey} with this key`,
          { retryAfterSeconds: 30 },
        )
      let isWriting = false
      try {
        const until = cursor?.until ?? (await exportEnd(source, query.until ?? null))
        const range = { since: query.since, until: query.until, after: cursor?.after.transactionId }
        await recordRead(caller, { kind: 'export', process, filter: filterText(range) })
        // The key is checked again for each page, because the key may expire or be revoked during a long export.
        const authorization = c.req.header('Authorization')
        const currentCaller = (): Caller => {
          const current = keys.identify(authorization)
          if (current === null) throw new IntegrationError('unauthorized', 'the key is not valid')
          current.requireScope('transactions:read')
          return current
        }
        const parts = lines(query, cursor, until, currentCaller)
        // The first page is read before the response head is sent, so that an unavailable store is reported as a
        // problem.
        const first = await parts.next()
        return rawResponse(
          c,
          { 'Content-Type': 'application/x-ndjson', 'Cache-Control': 'no-store' },
          (outgoing) => {
            isWriting = true
            return () =>
              void write(outgoing, parts, first.done === true ? '' : first.value).finally(freePlace)
          },
        )
      } finally {
        // If nothing is written, because of an error or a HEAD request, the export ends here and no longer counts as
        // open. Otherwise it counts as open until `write` has ended.
        if (!isWriting) freePlace()
      }
    },
  )
}

const lineOf = ({ run, items, attempts }: ExportedRun): string =>
  `${JSON.stringify({ ...run, Items: items, Attempts: attempts })}\n`

/** The filter of an export for the action log; `null` without a filter. `after` is the last run of the part before. */
const filterText = (range: Readonly<Record<string, string | undefined>>): string | null => {
  const set = Object.entries(range).filter(([, value]) => value !== undefined)
  return set.length === 0 ? null : set.map(([name, value]) => `${name}=${value}`).join(' ')
}
