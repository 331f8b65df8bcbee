import type { EndPosition } from '../../run/retention.ts'
import type { Run } from '../../run/run.ts'
import type { RunExports } from '../../run/run-export.ts'
import type { RunTable } from './run-table.ts'

/** The minimum size of a page. All runs are sorted for each page, so few large pages cost less than many small ones. */
const MIN_PAGE = 1_000

export const createMemoryExports = (
  table: RunTable,
  now: () => number,
  exportLagMs: number,
): RunExports => ({
  async exportEnd(wanted) {
    const wantedMs = wanted === null ? Infinity : Date.parse(wanted)
    return new Date(Math.min(wantedMs, now() - exportLagMs)).toISOString()
  },
  async exportPage({ process, since, until }, after, limit) {
    const [sinceMs, untilMs] = [since === null ? -Infinity : Date.parse(since), Date.parse(until)]
    const found = table
      .all()
      .filter(({ header: { Process, CompletedAt, PurgedAt } }) => {
        const at = Date.parse(CompletedAt ?? '')
        return Process === process && PurgedAt === null && at >= sinceMs && at < untilMs
      })
      .map((stored) => ({ stored, at: positionOf(stored.header) }))
      .filter(({ at }) => compare(at, after) > 0)
      .toSorted((a, b) => compare(a.at, b.at))
    const page = found.slice(0, Math.max(limit, MIN_PAGE))
    return {
      runs: page.map(({ stored: { header, items, attempts } }) => ({
        run: header,
        items,
        attempts,
      })),
      next: found.length > page.length ? (page.at(-1)?.at ?? null) : null,
    }
  },
})

const positionOf = ({ CompletedAt, TransactionID, ReplayID }: Run): EndPosition => ({
  completedAt: CompletedAt ?? '',
  transactionId: TransactionID,
  replayId: ReplayID,
})

function compare(a: EndPosition, b: EndPosition): number {
  if (a.completedAt !== b.completedAt) return a.completedAt < b.completedAt ? -1 : 1
  if (a.transactionId !== b.transactionId) return a.transactionId < b.transactionId ? -1 : 1
  return a.replayId - b.replayId
}
