import { entryOf } from '../../transaction/action.ts'
import type { ErasurePosition, Erasures, ErasureScope } from '../../transaction/erasure.ts'
import { type Run, runKey } from '../../transaction/run.ts'
import { isOver } from '../../transaction/status.ts'
import { erased } from '../../transaction/transitions.ts'
import type { MemoryStore } from './store.ts'

/** Erases runs of the memory source. `now` returns epoch ms. */
export function createMemoryErasures(
  { table, log, commit, compact }: Pick<MemoryStore, 'table' | 'log' | 'commit' | 'compact'>,
  now: () => number,
): Erasures {
  const inScope = (scope: ErasureScope) => {
    const isInScope = scopeTest(scope)
    return table.all().filter(({ header }) => header.PurgedAt === null && isInScope(header))
  }
  return {
    async erase(scope, { after, limit }, act) {
      const page = inScope(scope)
        .filter(({ header }) => isOver(header.Status))
        .filter(({ header }) => after === null || compare(header, after) > 0)
        .toSorted((a, b) => compare(a.header, b.header))
        .slice(0, limit)
      const entries = page
        .filter(({ header }) => header.ErasedAt === null)
        .map((stored) => ({
          run: erased(stored, now()),
          action: log.next(entryOf('erase', act, stored.header, { now: now() })),
        }))
      await commit(...entries)
      const last = page.at(-1)
      const isLast = last === undefined || page.length < limit
      // The journal and the snapshot contain the data until they are written again.
      if (isLast) await compact()
      return {
        runs: page.map(({ header }) => ({ ...runKey(header), isNew: header.ErasedAt === null })),
        next: isLast ? null : { ...runKey(last.header), CreatedAt: last.header.CreatedAt },
      }
    },
    async unerasable(scope) {
      const active = inScope(scope).filter(({ header }) => !isOver(header.Status)).length
      const isUnknown = (id: string): boolean =>
        'Ids' in scope && table.find(scope.Process, id, null) === undefined
      const unknown = 'Ids' in scope ? [...new Set(scope.Ids)].filter(isUnknown).length : 0
      return { active, unknown }
    },
  }
}

function scopeTest(scope: ErasureScope): (run: Run) => boolean {
  if (!('Ids' in scope))
    return ({ Process, Realm }) =>
      Realm === scope.Realm && (scope.Process === null || Process === scope.Process)
  const ids = new Set(scope.Ids)
  return ({ Process, TransactionID }) => Process === scope.Process && ids.has(TransactionID)
}

const text = ({ CreatedAt, Process, TransactionID }: ErasurePosition): string =>
  JSON.stringify([CreatedAt, Process, TransactionID])

/** Orders runs by time. Every order does that is total and stays the same. */
function compare(a: ErasurePosition, b: ErasurePosition): number {
  const [left, right] = [text(a), text(b)]
  return left === right ? a.ReplayID - b.ReplayID : left < right ? -1 : 1
}
